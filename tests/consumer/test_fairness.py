"""A poisoned key delays the others by less than the stated factor, counted in what is sent.

All messages are there at the start, and one lane does them. How long one waits is then the number
of statements, commits and rollbacks before its own commit: the same on every machine.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pytest
from sqlalchemy import Engine, event

from pillarbox.bus.memory import MemoryMessageBus
from pillarbox.consumer.config import ConsumerConfig
from pillarbox.consumer.context import Context
from pillarbox.consumer.signals import Park
from tests.consumer.rig import QUICK, Shop, record
from tests.support.database import on

pytestmark = on("postgres18+psycopg", "sqlite+aiosqlite")

FACTOR = 4  # as the guide says
MESSAGES, KEYS = 600, 6
OTHERS = MESSAGES - MESSAGES // KEYS
Poison = Literal["asks", "raises"]
SENT = ("before_cursor_execute", "commit", "rollback")


@dataclass
class Waits:
    """How much was sent before each message was committed."""

    shop: Shop
    poisoned: str | None
    poison: Poison = "asks"
    sent: int = 0
    done: Callable[[], None] = lambda: None
    """Called when all others are committed: what the poisoned key still has to do is its own time."""
    handled: list[str] = field(default_factory=list)
    until: dict[str, int] = field(default_factory=dict)

    async def handler(self, event: dict[str, Any], ctx: Context) -> None:
        await record(event, ctx)
        await ctx.session.flush()
        if ctx.envelope.key == self.poisoned:
            raise Park("in this test") if self.poison == "asks" else ValueError("in this test")
        self.handled.append(ctx.envelope.event_id)

    def committed(self) -> None:
        self.until.update(dict.fromkeys(self.handled, self.sent))
        self.handled.clear()
        if len(self.of_others()) == OTHERS:
            self.done()

    def of_others(self) -> list[int]:
        done = self.until.items()
        return sorted(sent for message_id, sent in done if not message_id.startswith("k0"))

    @contextmanager
    def counting(self, engine: Engine) -> Iterator[None]:
        def count(*given: Any) -> None:
            del given
            self.sent += 1

        for name in SENT:
            event.listen(engine, name, count)
        try:
            yield
        finally:
            for name in SENT:
                event.remove(engine, name, count)


async def waits(
    shop: Shop, config: ConsumerConfig, poisoned: str | None, poison: Poison = "asks"
) -> list[int]:
    await shop.clear()
    shop.bus = MemoryMessageBus()
    for n in range(MESSAGES):
        key = f"k{n % KEYS}"
        shop.send(f"{key}-{n}-{poisoned}", key, n=n)
    found = Waits(shop, poisoned, poison)
    shop.seen.at["committed"] = found.committed
    loop = shop.loop(found.handler, config)
    found.done = loop.stop
    with found.counting(shop.database.engine.sync_engine):
        await loop.run_forever()
    return found.of_others()


@pytest.mark.parametrize("batch_size", [100, 1])
@pytest.mark.parametrize("on_parked", ["hold", "pass"])
@pytest.mark.parametrize("poison", ["asks", "raises"])
async def test_a_poisoned_key_delays_the_others_by_less_than_the_stated_factor(
    shop: Shop, poison: Poison, on_parked: Literal["hold", "pass"], batch_size: int
) -> None:
    """One that asks is parked at once; one that raises comes again, with the usual pauses."""
    config = replace(
        QUICK, lanes=1, batch_size=batch_size, on_parked=on_parked, max_attempts=3, look_every=60.0
    )
    beside_a_healthy_one = await waits(shop, config, poisoned=None)
    beside_a_poisoned_one = await waits(shop, config, poisoned="k0", poison=poison)

    for share in (0.5, 0.99):
        place = int(OTHERS * share)
        assert beside_a_poisoned_one[place] < FACTOR * beside_a_healthy_one[place]
