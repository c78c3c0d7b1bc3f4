"""A poisoned key delays the others by less than the stated factor, counted in what is sent.

All messages are there at the start, and one lane does them. How long one waits is then the number
of statements, commits and rollbacks before its own commit: the same on every machine.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pytest
from sqlalchemy import Engine, event

from pillarbox.consumer.context import Context
from pillarbox.consumer.signals import Park
from tests.consumer.rig import QUICK, Shop, record
from tests.support.database import on

pytestmark = on("postgres18+psycopg", "sqlite+aiosqlite")

FACTOR = 4  # as the guide says
MESSAGES, KEYS = 600, 6
SENT = ("before_cursor_execute", "commit", "rollback")


@dataclass
class Waits:
    """How much was sent before each message was committed."""

    shop: Shop
    poisoned: str | None
    sent: int = 0
    handled: list[str] = field(default_factory=list)
    until: dict[str, int] = field(default_factory=dict)

    async def handler(self, event: dict[str, Any], ctx: Context) -> None:
        await record(event, ctx)
        await ctx.session.flush()
        if ctx.envelope.key == self.poisoned:
            raise Park("in this test")
        self.handled.append(ctx.envelope.event_id)

    def committed(self) -> None:
        self.until.update(dict.fromkeys(self.handled, self.sent))
        self.handled.clear()

    def of_others(self, but: str) -> list[int]:
        done = self.until.items()
        return sorted(sent for message_id, sent in done if not message_id.startswith(but))

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
    shop: Shop, on_parked: Literal["hold", "pass"], batch_size: int, poisoned: str | None
) -> list[int]:
    await shop.clear()
    for n in range(MESSAGES):
        key = f"k{n % KEYS}"
        shop.send(f"{key}-{n}-{poisoned}", key, n=n)
    found = Waits(shop, poisoned)
    shop.seen.at["committed"] = found.committed
    config = replace(QUICK, lanes=1, batch_size=batch_size, on_parked=on_parked)
    with found.counting(shop.database.engine.sync_engine):
        await shop.loop(found.handler, config).drain()
    return found.of_others("k0")


@pytest.mark.parametrize("batch_size", [100, 1])
@pytest.mark.parametrize("on_parked", ["hold", "pass"])
async def test_a_poisoned_key_delays_the_others_by_less_than_the_stated_factor(
    shop: Shop, on_parked: Literal["hold", "pass"], batch_size: int
) -> None:
    beside_a_healthy_one = await waits(shop, on_parked, batch_size, poisoned=None)
    beside_a_poisoned_one = await waits(shop, on_parked, batch_size, poisoned="k0")

    others = MESSAGES - MESSAGES // KEYS
    assert len(beside_a_healthy_one) == len(beside_a_poisoned_one) == others
    for share in (0.5, 0.99):
        place = int(others * share)
        assert beside_a_poisoned_one[place] < FACTOR * beside_a_healthy_one[place]
