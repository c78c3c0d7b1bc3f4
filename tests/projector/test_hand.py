"""The hand: what must not be read again, and which claims have ended."""

from uuid import UUID

from pillarbox.projector.hand import Hand
from pillarbox.projector.store import Failure, Settlement
from tests.projector.events import event, numbers

FIRST, SECOND = UUID(int=1), UUID(int=2)
WHY = Failure("too-large", "it is", 1.0)


def test_a_claim_ends_with_its_last_event() -> None:
    hand = Hand()
    hand.take(FIRST, [event(1), event(2)], {0: 1}, 0.0)
    one, other = Settlement(sent=[event(1)]), Settlement(failed=[(event(2), WHY)])

    hand.settling(one)
    hand.settling(other)

    assert one.ended == []
    assert other.ended == [FIRST]


def test_an_event_stays_in_hand_until_its_settlement_is_written() -> None:
    hand = Hand()
    hand.take(FIRST, [event(1)], {0: 1}, 0.0)
    settlement = Settlement(sent=[event(1)])

    hand.settling(settlement)
    assert 1 in hand
    assert hand.active() == [FIRST]
    hand.settled(settlement)
    assert len(hand) == 0
    assert hand.active() == []


def test_what_has_just_left_is_not_taken_from_a_claim_that_was_asked_for_before() -> None:
    hand, settlement = Hand(), Settlement(sent=[event(1)])
    hand.take(FIRST, [event(1)], {0: 1}, 0.0)
    hand.asking(0.0)
    hand.settling(settlement)

    hand.settled(settlement)

    assert 1 in hand
    hand.asking(0.0)
    assert 1 not in hand


def test_a_settlement_relies_on_the_leases_of_its_events() -> None:
    hand = Hand()
    hand.take(FIRST, [event(1, shard=1), event(2, shard=2)], {0: 5, 1: 6, 2: 7}, 0.0)

    assert hand.settling(Settlement(sent=[event(1, shard=1)], counted=[event(2, shard=2)])) == {
        1: 6,
        2: 7,
    }


def test_what_is_dropped_leaves_the_settlement_to_come_and_ends_its_claim() -> None:
    hand, coming = Hand(), Settlement(sent=[event(1), event(2, shard=1)])
    hand.take(FIRST, [event(1)], {0: 1}, 0.0)
    hand.take(SECOND, [event(2, shard=1)], {1: 1}, 0.0)

    gone = hand.drop(frozenset({0}), coming)

    assert list(gone) == [1]
    assert numbers(coming.sent) == [2]
    assert coming.ended == [FIRST]
    assert not hand.holds(frozenset({0}))
    assert hand.holds(frozenset({1}))


def test_what_is_claimed_again_outlives_the_settlement_of_its_earlier_copy() -> None:
    hand, written = Hand(), Settlement(sent=[event(1)])
    hand.take(FIRST, [event(1)], {0: 1}, 0.0)
    hand.settling(written)
    hand.drop(frozenset({0}), Settlement())
    hand.take(SECOND, [event(1)], {0: 2}, 0.0)

    hand.settled(written)

    assert 1 in hand
    assert hand.active() == [SECOND]


def test_an_event_grows_older_in_hand() -> None:
    hand, one = Hand(), event(1)._replace(age=2.0)
    hand.asking(10.0)
    hand.take(FIRST, [one], {0: 1}, 11.0)

    assert hand.age(one, 15.0) == 7.0


def test_a_claim_of_which_little_is_left_keeps_nothing_else() -> None:
    """All its events stayed in memory as long as one of them did: for hours, if its topic was away."""
    hand = Hand()
    events = [event(number, data=b"x" * 1_000) for number in range(1, 101)]
    hand.take(FIRST, events, {0: 1}, 0.0)
    *gone, kept = events
    settlement = Settlement(sent=gone)

    hand.settling(settlement)
    hand.settled(settlement)

    assert hand.size == 1_000
    assert hand.active() == [FIRST]
    assert [claim.events for claim in hand._claims.values()] == [[kept]]
    last = Settlement(sent=[kept])
    hand.settling(last)
    hand.settled(last)
    assert (hand.size, last.ended) == (0, [FIRST])
