"""Chores: how much is brought back at a time, and when the next look is."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import cast

import pytest

from pillarbox.outbox.release import CHUNK
from pillarbox.projector.breaker import Breaker
from pillarbox.projector.chores import Chores
from pillarbox.projector.observer import Observer
from pillarbox.projector.store import Control, Promoted, Store
from pillarbox.projector.tenure import Tenure
from pillarbox.projector.throttle import Throttle
from tests.projector.events import work

NOTHING_DUE = Promoted(0, None)


@dataclass
class Waiting:
    """The part of a store that keeps what waits: keys of topics, and events that are due."""

    keys: dict[str, int] = field(default_factory=dict)
    promoted: Promoted = NOTHING_DUE
    asked_for: list[Control] = field(default_factory=list)
    clock: float = 0.0
    """Each release takes a tenth of a second."""
    slow: dict[str, Callable[[], object]] = field(default_factory=dict)
    """Topics whose release takes over a second, and what is done meanwhile."""
    released: list[str] = field(default_factory=list)
    chunks: list[int] = field(default_factory=list)

    async def controls(self) -> Sequence[Control]:
        return self.asked_for

    async def waiting_topics(self) -> Sequence[str]:
        return [*self.slow, "orders"] if any(self.keys.values()) else []

    async def release_topic(
        self, topic: str, keys: int, apart: Mapping[str, int] | None = None, chunk: int = CHUNK
    ) -> int:
        self.released.append(topic)
        self.chunks.append(chunk)
        self.clock += 0.1
        if topic in self.slow:
            self.clock += 1.2
            self.slow[topic]()
            return keys
        left = keys
        for tenant, waiting in self.keys.items():
            most = left if apart is None else min(left, apart.get(tenant, left))
            self.keys[tenant] -= (gone := min(waiting, most))
            left -= gone
        return keys - left

    async def promote(self, shards: Sequence[int]) -> Promoted:
        assert shards
        return self.promoted


def chores(waiting: Waiting, *asked_for: Control) -> Chores:
    waiting.asked_for = list(asked_for)
    store, hand = cast(Store, waiting), work()
    tenure = Tenure(store, hand, Observer(), 2, 10.0, lambda: waiting.clock, epochs={0: 1, 1: 1})
    return Chores(
        store,
        hand,
        Throttle(),
        tenure,
        wake=lambda: None,
        sleep_idle=1.0,
        now=lambda: waiting.clock,
        poll_failed=lambda *_: None,
    )


def limit(rate: int, *, tenant_id: str = "*", topic: str = "*") -> Control:
    return Control(tenant_id, topic, paused=False, events_per_second=rate)


async def test_with_nothing_to_do_the_next_look_is_late() -> None:
    assert await chores(Waiting()).look() == 1.0


async def test_the_next_look_is_when_something_is_due() -> None:
    waiting = Waiting(promoted=Promoted(3, timedelta(seconds=0.4)))

    assert await chores(waiting).look() == 0.4


async def test_if_more_is_due_than_was_brought_back_the_next_look_is_at_once() -> None:
    waiting = Waiting(promoted=Promoted(1_000, timedelta(seconds=5), more=True))

    assert await chores(waiting).look() == 0.0


async def test_a_topic_that_is_back_is_looked_at_again_while_keys_wait_for_it() -> None:
    waiting = Waiting({"acme": 1_100})
    pauses = [await (looked := chores(waiting)).look() for _ in range(2)]

    assert all(pause < 0.2 for pause in pauses)
    assert await looked.look() == 1.0
    assert waiting.keys == {"acme": 0}


async def test_between_two_looks_settling_has_the_connection_for_as_long_as_the_look_took() -> None:
    waiting = Waiting({"acme": 1_100})

    assert round(await chores(waiting).look(), 6) == 0.1


async def test_a_topic_that_is_tried_is_not_looked_at_again_at_once() -> None:
    waiting = Waiting({"acme": 1_100})
    looked = chores(waiting)
    looked.work.topics["orders"] = Breaker(pause=0.1)

    assert await looked.look() == 1.0
    assert waiting.keys == {"acme": 1_099}


async def test_a_try_is_one_event_and_not_all_that_a_release_would_bring() -> None:
    """A thousand rows came back and were set aside again, each five seconds, by each member."""
    waiting = Waiting({"acme": 1_100})
    looked = chores(waiting)
    looked.work.topics["orders"] = Breaker(pause=0.1)
    await looked.look()

    del looked.work.topics["orders"]
    await looked.look()

    assert waiting.chunks == [1, CHUNK]


async def test_a_topic_that_is_away_is_waited_for_until_it_is_tried() -> None:
    waiting = Waiting({"acme": 1})
    looked = chores(waiting)
    looked.work.topics["orders"] = Breaker(pause=1.0, again_at=1.0)

    await looked.look()
    assert looked.awaits_topics

    waiting.clock = 1.0
    await looked.look()
    assert (waiting.keys, looked.awaits_topics) == ({"acme": 0}, False)


@pytest.mark.parametrize("tenant_id", ["*", "acme"])
async def test_a_topic_that_is_away_and_paused_is_not_waited_for(tenant_id: str) -> None:
    """Nothing of it will be sent, whatever time passes."""
    waiting = Waiting({"acme": 1}, clock=2.0)
    looked = chores(waiting, Control(tenant_id, "orders", paused=True, events_per_second=None))
    looked.work.topics["orders"] = Breaker(pause=1.0, again_at=1.0)

    await looked.look()

    assert (waiting.keys, looked.awaits_topics) == ({"acme": 1}, False)


async def test_a_limited_topic_lets_go_of_what_its_rate_allows() -> None:
    waiting = Waiting({"acme": 1_100})

    assert await chores(waiting, limit(700, topic="orders")).look() == 1.0
    assert waiting.keys == {"acme": 400}


async def test_the_limit_of_one_tenant_does_not_hold_up_the_keys_of_others() -> None:
    waiting = Waiting({"acme": 1_000, "bolt": 1_000})

    await chores(waiting, limit(1, tenant_id="acme", topic="orders")).look()

    assert waiting.keys == {"acme": 999, "bolt": 501}


async def test_a_tenant_whose_topic_is_paused_keeps_its_keys() -> None:
    waiting = Waiting({"acme": 10, "bolt": 10})

    await chores(waiting, Control("acme", "orders", paused=True, events_per_second=None)).look()

    assert waiting.keys == {"acme": 10, "bolt": 0}


async def test_a_limited_topic_is_let_go_of_behind_one_that_takes_long() -> None:
    waiting = Waiting({"acme": 1_000})
    looked = chores(waiting, limit(100, topic="orders"))
    waiting.slow["audit"] = lambda: looked.throttle.shut_topics(waiting.clock)

    await looked.look()

    assert waiting.released == ["audit", "orders"]
    assert waiting.keys == {"acme": 900}
