"""What is read again after a settlement, and how soon."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from pillarbox.bus.outcome import ACCEPTED, Refused
from pillarbox.projector.observer import Observer
from pillarbox.projector.settler import Settler
from pillarbox.projector.signals import Signals
from pillarbox.projector.store import OutboxEvent, Settled, Settlement
from pillarbox.projector.work import Work
from tests.projector.events import event, numbers, publish, work
from tests.support.waiting import until


class Desk:
    """A store that could set nothing aside, and notes what is to be read again."""

    def __init__(self) -> None:
        self.read: list[int] = []

    async def settle(self, settlement: Settlement, _: Mapping[int, int]) -> Settled:
        return Settled(again=tuple(settlement.aside + settlement.waiting))

    def read_again(self, events: Sequence[OutboxEvent]) -> None:
        self.read += numbers(events)


def settler(desk: Desk, hand: Work) -> Settler:
    store: Any = desk
    return Settler(
        store, hand, Observer(), Signals(), None, lambda: 0.0, lambda: None, lambda *_: None
    )


async def test_what_waits_for_its_topic_and_cannot_be_set_aside_is_read_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pillarbox.projector.settler._LATER", 0.01)
    desk, hand = Desk(), work()
    hand.shut = frozenset({("*", "orders")})
    hand.claimed(UUID(int=1), [event(1)], {0: 1})
    made = settler(desk, hand)

    await made._settle(*hand.take_settlement())

    assert (desk.read, made.signals.wake.is_set()) == ([], False)

    async def is_read() -> bool:
        return desk.read == [1] and made.signals.wake.is_set()

    await until(is_read, "it is read again")


async def test_what_was_behind_a_key_that_is_free_by_now_is_read_again_at_once() -> None:
    desk, hand = Desk(), work()
    hand.claimed(UUID(int=1), [event(1), event(2)], {0: 1})
    publish(hand, Refused("too-large", "it is"))
    made = settler(desk, hand)

    await made._settle(*hand.take_settlement())

    assert desk.read == [2, 1]
    assert made.signals.wake.is_set()


async def test_a_settlement_that_hangs_is_known_by_its_age() -> None:
    seen = []

    class Slow(Desk):
        async def settle(self, settlement: Settlement, epochs: Mapping[int, int]) -> Settled:
            seen.append(made.busy_since)
            return await super().settle(settlement, epochs)

    hand = work()
    hand.claimed(UUID(int=1), [event(1)], {0: 1})
    publish(hand, ACCEPTED)
    made = settler(Slow(), hand)
    made.now = lambda: timedelta(minutes=1).total_seconds()

    await made._settle(*hand.take_settlement())

    assert seen == [60.0]
