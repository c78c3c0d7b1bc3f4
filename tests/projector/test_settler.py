"""What a settlement leads to: hooks, counts, and what is read again how soon."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar
from uuid import UUID

import pytest

from pillarbox.bus.outcome import ACCEPTED, Refused
from pillarbox.projector.observer import Observer
from pillarbox.projector.settler import DeadHook, Settler
from pillarbox.projector.signals import Signals
from pillarbox.projector.store import Failure, OutboxEvent, Settled, Settlement
from pillarbox.projector.work import Work
from tests.projector.events import event, numbers, publish, taken, work
from tests.support.waiting import until


class Desk:
    """A store that could set nothing aside, and notes what is to be read again."""

    def __init__(self) -> None:
        self.read: list[int] = []

    async def settle(self, settlement: Settlement, _: Mapping[int, int]) -> Settled:
        return Settled(again=tuple(settlement.aside + settlement.waiting))

    def read_again(self, events: Sequence[OutboxEvent]) -> None:
        self.read += numbers(events)


def settler(desk: Desk, hand: Work, hook: DeadHook | None = None) -> Settler:
    store: Any = desk
    return Settler(
        store, hand, Observer(), Signals(), hook, lambda: 0.0, lambda: None, lambda *_: None
    )


async def test_what_waits_for_its_topic_and_cannot_be_set_aside_is_read_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pillarbox.projector.settler._LATER", 0.01)
    desk, hand = Desk(), work()
    hand.shut = frozenset({("*", "orders")})
    hand.claimed(UUID(int=1), [event(1)], {0: 1}, 0.0)
    made = settler(desk, hand)

    await made._settle(*hand.take_settlement())

    assert (desk.read, made.signals.wake.is_set()) == ([], False)

    async def is_read() -> bool:
        return desk.read == [1] and made.signals.wake.is_set()

    await until(is_read, "it is read again")


async def test_what_was_behind_a_key_that_is_free_by_now_is_read_again_at_once() -> None:
    desk, hand = Desk(), work()
    hand.claimed(UUID(int=1), [event(1), event(2)], {0: 1}, 0.0)
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
    hand.claimed(UUID(int=1), [event(1)], {0: 1}, 0.0)
    publish(hand, ACCEPTED)
    made = settler(Slow(), hand)
    made.now = lambda: timedelta(minutes=1).total_seconds()

    await made._settle(*hand.take_settlement())

    assert seen == [60.0]


async def test_hooks_of_events_that_die_together_run_side_by_side(
    caplog: pytest.LogCaptureFixture,
) -> None:
    barrier = asyncio.Barrier(3)

    async def hook(one: OutboxEvent, failure: Failure) -> None:
        del one, failure
        await barrier.wait()

    hand = work()
    events = [event(number, f"key-{number}", expires_in=0.0) for number in range(3)]
    hand.claimed(UUID(int=1), events, {0: 1}, 0.0)
    settlement, _ = hand.take_settlement()

    async with asyncio.timeout(5):
        await settler(Desk(), hand, hook)._tell_of_the_dead(settlement)

    assert "dead_hook_failed" not in caplog.messages


async def test_hooks_of_very_many_events_are_all_called_in_their_own_time(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pillarbox.projector.settler._HOOKS_AT_ONCE", 2)
    most, running, called = 0, 0, []

    async def hook(one: OutboxEvent, failure: Failure) -> None:
        nonlocal most, running
        del failure
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        called.append(one.seq)

    hand = work()
    events = [event(number, f"key-{number}", expires_in=0.0) for number in range(9)]
    hand.claimed(UUID(int=1), events, {0: 1}, 0.0)
    settlement, _ = hand.take_settlement()

    await settler(Desk(), hand, hook)._tell_of_the_dead(settlement)

    assert (most, sorted(called)) == (2, list(range(9)))
    assert "dead_hook_failed" not in caplog.messages


async def test_events_whose_lease_is_lost_count_as_fenced_and_not_as_settled() -> None:
    class Fenced(Desk):
        async def settle(self, settlement: Settlement, _: Mapping[int, int]) -> Settled:
            del settlement
            return Settled(lost=frozenset({1}))

    class Counts(Observer):
        told: ClassVar[dict[str, int]] = {}

        def fenced(self, events: int) -> None:
            self.told["fenced"] = events

        def settled(self, *, sent: int, failed: int, dead: int, took: timedelta) -> None:
            del took
            self.told.update(sent=sent, failed=failed, dead=dead)

    hand = work(attempts=1)
    expired = [event(4, "d", expires_in=0.0), event(5, "e", shard=1, expires_in=0.0)]
    events = [event(1, "a"), event(2, "b", shard=1), event(3, "c", shard=1)]
    hand.claimed(UUID(int=1), [*events, *expired], {0: 1, 1: 1}, 0.0)
    publish(hand, ACCEPTED)
    made = settler(Fenced(), hand)
    made.observer = Counts()

    await made._settle(*hand.take_settlement())

    assert Counts.told == {"fenced": 3, "sent": 1, "failed": 0, "dead": 1}


class Fenced(Observer):
    def __init__(self) -> None:
        self.events: list[int] = []

    def fenced(self, events: int) -> None:
        self.events.append(events)


@pytest.mark.parametrize("lapses", [False, True])
async def test_what_is_fenced_is_counted_once_also_if_the_lease_lapses_meanwhile(
    lapses: bool,
) -> None:
    """What was dropped while its settlement was being written was counted again after it."""
    hand, observer = work(), Fenced()

    class Overtaken(Desk):
        async def settle(self, *_: object) -> Settled:
            if lapses:
                observer.fenced(hand.drop(frozenset({0})))  # as Tenure does
            return Settled(lost=frozenset({0}))

    hand.claimed(UUID(int=1), [event(1, "a"), event(2, "b"), event(3, "c")], {0: 1}, 0.0)
    batch = taken(hand)
    hand.answered(batch._replace(events=batch.events[:2]), [ACCEPTED] * 2, 0.0)
    made = settler(Overtaken(), hand)
    made.observer = observer

    await made._settle(*hand.take_settlement())

    assert sum(observer.events) == 3
