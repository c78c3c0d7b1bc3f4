"""Events that cannot be read, payloads that are large, and words that no database takes."""

import pytest

from pillarbox.bus.outcome import ACCEPTED, Refused, Unavailable
from pillarbox.projector.store import UNREADABLE
from tests.projector.events import claim, event, numbers, publish, send, settle, work

DOWN = Unavailable("missing", "no such topic", "orders")


@pytest.mark.parametrize("together", [False, True])
def test_an_unreadable_event_is_refused_unsent_and_holds_its_key(together: bool) -> None:
    hand = work(together=together)
    claim(hand, event(1), event(2, unreadable=True), event(3), event(4, "other"))

    sent = []
    while batch := hand.next_batch(0.0) or hand.next_batch(0.0):
        sent += numbers(batch.events)
        hand.answered(batch, [ACCEPTED] * len(batch.events), 0.0)

    assert sorted(sent) == [1, 4]
    settlement = settle(hand)
    [(failed, why)] = settlement.failed
    assert (failed.seq, why.code) == (2, UNREADABLE)
    assert numbers(settlement.aside) == [3]
    assert not hand.hand


def test_an_unreadable_event_is_no_try_of_a_topic_that_was_away() -> None:
    hand = work()
    claim(hand, event(1))
    publish(hand, DOWN)
    claim(hand, event(2, "odd", unreadable=True), number=2)

    tries = [send(hand, now=9.0) for _ in range(3)]

    assert [1] in tries


def test_nothing_more_is_claimed_while_the_payloads_in_hand_are_large() -> None:
    hand = work(batch_size=10)
    claim(hand, event(1, data=b"x" * 600_000), event(2, "other", data=b"x" * 600_000))

    before = hand.room(40, 0.0)
    publish(hand, ACCEPTED)
    settle(hand)

    assert (before, hand.room(40, 0.0)) == (0, 10)


def test_payloads_of_lost_shards_weigh_nothing() -> None:
    hand = work(batch_size=10)
    claim(hand, event(1, data=b"x" * 1_200_000))

    hand.drop(frozenset({0}))

    assert hand.room(40, 0.0) == 10


@pytest.mark.parametrize(
    ("code", "kept"),
    [("skipped", "bus-skipped"), ("expired", "bus-expired"), ("c" * 300, "c" * 100)],
)
def test_words_of_a_bus_are_kept_as_the_database_takes_them(code: str, kept: str) -> None:
    hand = work()
    claim(hand, event(1))

    publish(hand, Refused(code, "a\x00b\ud800" + "z" * 9_000))

    [(_, why)] = settle(hand).failed
    assert why.code == kept
    assert why.reason.startswith("a�b?z")
    assert len(why.reason) == 2_000
