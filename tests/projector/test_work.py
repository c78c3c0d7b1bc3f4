"""What is in hand: what goes when, and what becomes of it."""

from uuid import UUID

import pytest

from pillarbox.bus.outcome import ACCEPTED, PublishOutcome, Refused, Unavailable
from pillarbox.projector.ready import Batch
from pillarbox.projector.store import KILLER, Settled, Settlement, Suspects
from pillarbox.projector.work import TRY
from tests.projector.events import (
    LOST,
    claim,
    event,
    numbers,
    publish,
    send,
    settle,
    taken,
    work,
)

TOO_LARGE = Refused("too-large", "it is")
TOGETHER = Refused("too-large", "one of them is", certain=False)
DOWN = Unavailable("down", "it is")
MISSING = Unavailable("missing", "no such topic", "orders")


def test_events_of_one_key_go_one_after_the_other() -> None:
    hand = work()
    claim(hand, event(1), event(2), event(3, "other"))

    assert publish(hand, ACCEPTED) == [1, 3]
    assert publish(hand, ACCEPTED) == [2]


def test_events_of_one_key_go_together_where_the_bus_keeps_their_order() -> None:
    hand = work(together=True)
    claim(hand, event(1), event(2), event(3, topic="bills"))

    assert publish(hand, ACCEPTED) == [1, 2]
    assert publish(hand, ACCEPTED) == [3]


def test_a_refused_event_is_failed_and_those_behind_it_are_set_aside() -> None:
    hand = work()
    claim(hand, event(1), event(2), event(3))

    publish(hand, TOO_LARGE)

    settlement = settle(hand)
    [(failed, why)] = settlement.failed
    assert (failed.seq, why.code) == (1, "too-large")
    assert why.delay is not None
    assert numbers(settlement.aside) == [2, 3]
    assert not hand.hand


def test_the_last_attempt_leaves_an_event_dead() -> None:
    hand = work(attempts=3)
    claim(hand, event(1, attempts=2))

    publish(hand, TOO_LARGE)

    [(dead, why)] = settle(hand).dead
    assert (dead.seq, why.delay) == (1, None)


def test_a_refusal_of_several_is_tried_one_by_one_before_it_counts() -> None:
    hand = work()
    claim(hand, event(1, "a"), event(2, "b"))

    publish(hand, TOGETHER)
    batch = taken(hand)
    hand.answered(batch, [ACCEPTED, TOO_LARGE], 0.0)

    assert batch.one_by_one
    settlement = settle(hand)
    assert numbers(settlement.sent) == [1]
    assert [failed.seq for failed, _ in settlement.failed] == [2]


@pytest.mark.parametrize("outcome", [DOWN, MISSING, LOST])
def test_a_destination_that_fails_counts_no_attempt(outcome: PublishOutcome) -> None:
    hand = work()
    claim(hand, event(1), event(2))

    publish(hand, outcome)

    assert not hand.to_settle
    assert send(hand, now=0.05) == []
    assert publish(hand, ACCEPTED, now=9.0) == [1]


def test_a_bus_that_is_down_is_tried_with_a_few() -> None:
    hand = work(batch_size=500)
    claim(hand, *(event(seq, f"k{seq}") for seq in range(1, 201)))
    publish(hand, DOWN)

    assert len(send(hand, now=9.0)) == TRY
    assert send(hand, now=9.0) == []


def test_a_topic_that_is_missing_holds_up_no_other() -> None:
    hand = work()
    claim(hand, event(1, "a"), event(2, "b", topic="bills"))

    publish(hand, MISSING, ACCEPTED)
    claim(hand, event(3, "c", topic="bills"), event(4, "d"), number=2)

    assert send(hand) == [3]


def test_what_waits_for_a_topic_is_set_aside_when_there_is_no_room() -> None:
    hand = work()
    claim(hand, event(1), event(2))
    publish(hand, MISSING)

    hand.spill(hand.topics)

    settlement = settle(hand)
    assert numbers(settlement.waiting) == [1]
    assert numbers(settlement.aside) == [2]


def test_an_expired_event_is_dead_and_blocks_nobody() -> None:
    hand = work()
    claim(hand, event(1, expires_in=0.0), event(2))

    assert send(hand) == [2]
    [(dead, why)] = settle(hand).dead
    assert (dead.seq, why.code) == (1, "expired")


@pytest.mark.parametrize("together", [True, False])
def test_an_event_that_expires_in_hand_is_dead_and_those_behind_it_go(together: bool) -> None:
    hand = work(together=together)
    claim(hand, event(1, expires_in=5.0), event(2))
    publish(hand, DOWN)

    assert send(hand, now=6.0) == [2]

    [(dead, why)] = settle(hand).dead
    assert (dead.seq, why.code) == (1, "expired")


def test_an_event_that_expires_while_it_waits_to_go_alone_is_dead() -> None:
    hand = work(together=True)
    claim(hand, event(1, expires_in=5.0), event(2, "other"), now=1.0)
    publish(hand, TOGETHER)

    assert send(hand, now=5.9) == [1, 2]
    hand = work(together=True)
    claim(hand, event(1, expires_in=5.0), event(2, "other"), now=1.0)
    publish(hand, TOGETHER)

    assert send(hand, now=6.0) == [2]


def test_a_call_that_begins_after_a_failure_leaves_out_what_would_overtake() -> None:
    hand = work(together=True, batch_size=1)
    claim(hand, event(1), event(2), event(3, "other"))
    first, second, third = taken(hand), taken(hand), taken(hand)

    hand.answered(hand.starting(first), [TOO_LARGE], 0.0)

    assert hand.starting(second).events == []
    assert numbers(hand.starting(third).events) == [3]
    hand.answered(third, [ACCEPTED], 0.0)
    assert publish(hand, ACCEPTED) == [1]
    assert send(hand) == [2]


def test_a_call_leaves_out_what_was_dropped_before_it_began() -> None:
    hand = work()
    claim(hand, event(1), event(2, "other", shard=1))
    batch = taken(hand)

    hand.drop(frozenset({1}))

    assert numbers(hand.starting(batch).events) == [1]


def test_what_has_arrived_is_told_once() -> None:
    hand = work()
    claim(hand, event(1), event(2, "b"), event(3, "c"))
    batch = taken(hand)

    assert numbers(hand.answered(batch, [ACCEPTED, LOST, ACCEPTED], 0.0)) == [1, 3]
    assert numbers(hand.answered(batch, [ACCEPTED, ACCEPTED, ACCEPTED], 0.0)) == []


def test_what_is_not_sent_yet_does_not_go_after_a_failure_of_its_key() -> None:
    hand = work(together=True, batch_size=1)
    claim(hand, event(1), event(2))

    publish(hand, LOST)

    assert send(hand, now=9.0) == []
    assert send(hand, now=9.0) == [1]


def test_what_is_not_sent_yet_does_not_go_after_a_refusal_of_its_key() -> None:
    hand = work(together=True, batch_size=1)
    claim(hand, event(1), event(2))

    publish(hand, TOO_LARGE)
    assert send(hand) == []
    publish(hand, TOO_LARGE)

    settlement = settle(hand)
    assert [failed.seq for failed, _ in settlement.failed] == [1]
    assert numbers(settlement.aside) == [2]


def test_of_two_refused_events_of_a_key_only_the_first_is_failed() -> None:
    hand = work(together=True)
    claim(hand, event(1), event(2))

    publish(hand, TOO_LARGE)
    publish(hand, TOO_LARGE)

    settlement = settle(hand)
    assert [failed.seq for failed, _ in settlement.failed] == [1]
    assert numbers(settlement.aside) == [2]


def test_an_event_behind_a_failed_one_does_not_wait_for_its_topic() -> None:
    hand = work()
    claim(hand, event(1))
    batch = taken(hand)
    hand.shut = frozenset({("*", "bills")})
    claim(hand, event(2, topic="bills"), number=2)

    hand.answered(batch, [TOO_LARGE], 0.0)

    settlement = settle(hand)
    assert not settlement.waiting
    assert numbers(settlement.aside) == [2]


def test_a_claim_that_was_asked_for_before_a_block_was_written_does_not_pass_it() -> None:
    hand = work()
    claim(hand, event(1))
    publish(hand, TOO_LARGE)
    hand.asking(0.0)
    settle(hand)

    hand.claimed(UUID(int=2), [event(2)], {0: 1}, 0.0)

    assert numbers(settle(hand).aside) == [2]


def test_a_block_that_is_not_written_yet_is_not_forgotten_with_an_earlier_settlement() -> None:
    hand = work()
    claim(hand, event(1, "a"), event(2, "b"))
    batch = taken(hand)
    hand.answered(Batch(batch.events[:1]), [ACCEPTED], 0.0)
    earlier, _ = hand.take_settlement()
    hand.answered(Batch(batch.events[1:]), [TOO_LARGE], 0.0)
    hand.settled(earlier, Settled())

    claim(hand, number=2)
    claim(hand, event(3, "b"), number=3)

    assert numbers(settle(hand).aside) == [3]


def test_nothing_passes_a_blocked_event_that_is_read_again() -> None:
    hand = work()
    claim(hand, event(1, blocked=True))
    hand.asking(0.0)
    settlement, _ = hand.take_settlement()
    again, _ = hand.settled(settlement, Settled(again=(event(1),)))

    hand.claimed(UUID(int=2), [event(2)], {0: 1}, 0.0)

    assert numbers(again) == [1]
    assert numbers(settle(hand).aside) == [2]


def test_the_event_that_comes_back_passes_its_own_stop() -> None:
    hand = work()
    claim(hand, event(1))
    publish(hand, TOO_LARGE)
    hand.asking(0.0)
    settle(hand)

    hand.claimed(UUID(int=2), [event(1, attempts=1)], {0: 1}, 0.0)

    assert send(hand) == [1]


def test_what_failed_is_read_again_because_it_may_have_come_back_meanwhile() -> None:
    hand = work()
    claim(hand, event(1))
    publish(hand, TOO_LARGE)
    settlement, _ = hand.take_settlement()

    again, _ = hand.settled(settlement, Settled())

    assert numbers(again) == [1]


def test_a_late_answer_about_a_lost_lease_spares_what_was_claimed_anew() -> None:
    hand = work()
    claim(hand, event(1))
    publish(hand, ACCEPTED)
    settlement, _ = hand.take_settlement()
    hand.drop(frozenset({0}))
    claim(hand, event(1), event(2, "other"), number=2, epochs={0: 2})

    hand.settled(settlement, Settled(lost=frozenset({0})))

    assert send(hand) == [1, 2]


def test_what_is_dropped_with_a_lease_that_a_settlement_finds_lost_is_counted() -> None:
    hand = work()
    claim(hand, *(event(number, f"k{number}") for number in range(10)))
    hand.next_batch(0.0)
    settlement = Settlement(sent=[event(0, "k0")])
    epochs = hand.hand.settling(settlement)

    _, dropped = hand.settled(settlement, Settled(lost=frozenset(epochs)))

    assert dropped == 10


def test_what_was_claimed_under_a_lease_that_is_lost_is_not_sent() -> None:
    hand = work()
    claim(hand, event(1), event(2))
    publish(hand, ACCEPTED)
    hand.asking(0.0)
    settle(hand, Settled(lost=frozenset({0})))

    hand.claimed(UUID(int=2), [event(3), event(4, "other", shard=1)], {0: 1, 1: 1}, 0.0)

    assert send(hand) == [4]


def test_an_answer_for_an_earlier_copy_is_ignored() -> None:
    hand = work()
    claim(hand, event(1), event(2))
    batch = taken(hand)
    hand.drop(frozenset({0}))
    claim(hand, event(1), event(2), number=2, epochs={0: 2})
    assert send(hand) == [1]

    hand.answered(batch, [TOO_LARGE], 0.0)

    assert not hand.hand.drop(frozenset({1}), settle(hand))
    assert len(hand.hand) == 2


# After the death of another projector


def test_after_a_death_half_as_much_is_claimed_one_claim_at_a_time() -> None:
    hand = work(batch_size=100)
    hand.suspect(Suspects(frozenset(range(10)), largest=10))

    assert hand.room(400, 0.0) == 5
    claim(hand, event(1))
    assert hand.room(400, 0.0) == 0
    publish(hand, ACCEPTED)
    settle(hand)
    assert hand.room(400, 0.0) == 5


def test_care_outlasts_a_claim_that_found_nothing() -> None:
    hand = work(batch_size=100)
    hand.suspect(Suspects(frozenset({7}), largest=1))

    claim(hand)

    assert hand.room(400, 0.0) == 1


def test_care_ends_when_twice_as_much_was_claimed() -> None:
    hand = work(batch_size=100)
    hand.suspect(Suspects(frozenset({1, 2}), largest=2))
    claim(hand, *(event(seq, f"k{seq}") for seq in range(1, 5)))
    publish(hand, ACCEPTED)
    settle(hand)

    assert hand.room(400, 0.0) == 100


def test_an_event_that_was_alone_in_flight_is_counted_before_it_is_sent() -> None:
    hand = work()
    hand.suspect(Suspects(frozenset({1}), largest=1))
    claim(hand, event(1))

    assert send(hand) == []
    assert numbers(settle(hand).counted) == [1]
    [counted] = taken(hand).events
    assert (counted.seq, counted.attempts) == (1, 1)


@pytest.mark.parametrize("together", [False, True])
def test_nothing_of_its_key_passes_an_event_that_is_being_counted(together: bool) -> None:
    hand = work(together=together)
    hand.suspect(Suspects(frozenset({1}), largest=8))
    claim(hand, event(1), event(2))

    assert send(hand) == []
    settle(hand)
    assert publish(hand, ACCEPTED) == [1]
    assert publish(hand, ACCEPTED) == [2]


def test_a_killer_that_gave_up_blocks_its_key() -> None:
    hand = work(attempts=3)
    hand.suspect(Suspects(frozenset({1}), largest=8))
    claim(hand, event(1, attempts=2), event(2))
    settle(hand)

    settlement = settle(hand)

    [(dead, why)] = settlement.dead
    assert (dead.seq, why.code) == (1, KILLER)
    assert numbers(settlement.aside) == [2]


def test_a_death_is_counted_once() -> None:
    hand = work()
    hand.suspect(Suspects(frozenset({1}), largest=1))
    claim(hand, event(1))
    settle(hand)
    publish(hand, TOO_LARGE)
    settle(hand)

    claim(hand, event(1, attempts=2), number=2)

    assert send(hand) == [1]


def test_an_event_whose_lease_is_lost_while_it_is_counted_is_not_sent() -> None:
    hand = work()
    hand.suspect(Suspects(frozenset({1}), largest=1))
    claim(hand, event(1))
    settlement, _ = hand.take_settlement()
    hand.drop(frozenset({0}))

    hand.settled(settlement, Settled())

    assert send(hand) == []
