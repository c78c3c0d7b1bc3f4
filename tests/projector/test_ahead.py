"""What is claimed next and sent first while some tenants have a backlog and others have news."""

import pytest

from pillarbox.bus.outcome import ACCEPTED, Unavailable
from pillarbox.projector.mixture import Call, next_call
from pillarbox.projector.ready import Batch
from pillarbox.projector.work import TRY
from tests.projector.events import LOST, claim, event, publish, send, taken, work

MISSING = Unavailable("missing", "no such topic", "bills")


def test_news_goes_ahead_of_what_is_ready() -> None:
    hand = work()
    claim(hand, event(1, "a"), event(2, "b"))
    claim(hand, event(3, "c"), event(4, "d"), number=2, ahead={"acme"})

    assert publish(hand, ACCEPTED) == [3, 4]
    assert publish(hand, ACCEPTED) == [1, 2]


def test_what_goes_ahead_hurries_until_it_is_sent() -> None:
    hand = work()
    claim(hand, event(1), ahead={"acme"})

    batches = [hand.hurries, hand.next_batch(0.0), hand.hurries]

    assert batches == [True, Batch([event(1)], ahead=True), False]


def test_news_does_not_pass_what_is_ready_of_its_own_key() -> None:
    hand = work(together=True)
    claim(hand, event(1, "a"), event(2, "b"))
    claim(hand, event(3, "a"), event(4, "c"), event(5, "a"), number=2, ahead={"acme"})

    assert publish(hand, ACCEPTED) == [4]
    assert publish(hand, ACCEPTED) == [1, 2, 3, 5]


def test_news_behind_a_failure_of_its_key_does_not_go_ahead() -> None:
    hand = work(together=True)
    claim(hand, event(1, "a"), event(2, "b"))
    flying = taken(hand)
    claim(hand, event(3, "a"), number=2, ahead={"acme"})

    hand.answered(flying, [LOST, ACCEPTED], 0.0)

    assert send(hand) == []
    assert publish(hand, ACCEPTED) == [1, 3]


def test_news_of_a_lost_lease_is_not_sent() -> None:
    hand = work()
    claim(hand, event(1, "a", shard=1), event(2, "b"), ahead={"acme"})

    hand.drop(frozenset({1}))

    assert publish(hand, ACCEPTED) == [2]


def test_of_a_claim_for_everything_only_the_news_goes_ahead() -> None:
    hand = work()
    claim(hand, event(1, "a"))
    claim(hand, event(9, "a", tenant="quiet"), event(2, "b"), number=2, ahead={"quiet"})

    assert publish(hand, ACCEPTED) == [9]
    assert publish(hand, ACCEPTED) == [1, 2]


def test_news_for_a_topic_that_is_missing_holds_up_nobody() -> None:
    hand = work()
    claim(hand, event(1, "a", topic="bills"))
    publish(hand, MISSING)
    claim(hand, event(2, "b"), number=2)
    claim(hand, event(3, "c", topic="bills", tenant="quiet"), number=3, ahead={"quiet"})

    assert send(hand) == [2]


def test_what_is_ready_does_not_pass_news_behind_news_that_may_not_go() -> None:
    hand = work(together=True, batch_size=2)
    claim(hand, event(1, "a", topic="bills"))
    publish(hand, MISSING)
    stuck = event(2, "b", topic="bills"), event(3, "c", topic="bills")
    claim(hand, *stuck, event(4, "k"), number=2, ahead={"acme"})
    claim(hand, event(5, "k"), number=3)

    assert publish(hand, ACCEPTED) == [4]
    assert publish(hand, ACCEPTED) == [5]


def test_a_filled_batch_has_news_first_and_then_what_is_ready() -> None:
    hand = work(batch_size=3)
    claim(hand, event(1, "a"), event(2, "b"))
    claim(hand, event(3, "c"), event(4, "d"), number=2, ahead={"acme"})

    batches = [hand.next_batch(0.0, filled=True), hand.next_batch(0.0, filled=True)]

    assert batches == [Batch([event(3, "c"), event(4, "d"), event(1, "a")]), Batch([event(2, "b")])]


def test_news_without_end_does_not_keep_others_from_being_sent() -> None:
    hand = work(batch_size=10)
    claim(hand, event(1, "old"))
    calls: list[Batch] = []
    sent: list[int] = []
    for seq in range(2, 50):  # at any time there is news, and of all calls the oldest ends
        claim(hand, event(seq, f"k{seq}"), number=seq, ahead={"acme"})
        hurrying = sum(call.ahead for call in calls)
        call = next_call(len(calls), hurrying, most=2, news=hand.hurries)
        if batch := hand.next_batch(0.0, filled=call is Call.BOTH):
            calls.append(batch)
            sent += [event.seq for event in batch.events]
        if len(calls) == 4:
            calls.pop(0)

    assert 1 in sent[:5]


def test_news_in_hand_leaves_room_for_the_small_steps_of_others() -> None:
    hand = work(batch_size=1_600)
    claim(hand, *(event(seq, f"k{seq}") for seq in range(6_000)), ahead={"acme"})

    assert hand.room(6_400, 0.0, 16) == 100
    others = [event(seq, f"k{seq}", tenant="other") for seq in range(7_000, 7_401)]
    claim(hand, *others, number=2)
    assert hand.room(8_000, 0.0, 16) == 0
    assert hand.room(6_400, 0.0) == 0


def test_the_small_steps_of_others_have_no_more_room_than_the_whole_hand() -> None:
    hand = work(batch_size=1_600)
    claim(hand, *(event(seq, f"k{seq}") for seq in range(6_301)), ahead={"acme"})

    assert hand.room(6_400, 0.0, 16) == 0


def test_small_steps_are_a_part_of_a_batch() -> None:
    hand = work(batch_size=1_600)

    assert hand.room(6_400, 0.0, 16) == 100
    claim(hand, *(event(seq, f"k{seq}") for seq in range(301)))
    assert hand.room(6_400, 0.0, 16) == 0
    assert hand.room(6_400, 0.0) == 1_600


@pytest.mark.parametrize(("batch_size", "step"), [(100, TRY), (TRY, TRY), (3, 3), (1, 1)])
def test_small_steps_are_not_tiny_where_batches_are_small(batch_size: int, step: int) -> None:
    hand = work(batch_size=batch_size)

    assert hand.room(batch_size, 0.0, 16) == step
    claim(hand, *(event(seq, f"k{seq}") for seq in range(step)))
    assert hand.room(4 * batch_size, 0.0, 16) == step
    claim(hand, event(step), number=2)
    assert hand.room(4 * batch_size, 0.0, 16) == 0
