"""Which events of a claim are to be sent: a rate is charged for them alone."""

from pillarbox.bus.outcome import ACCEPTED, Refused
from pillarbox.projector.store import Settled, Suspects
from tests.projector.events import claim, event, publish, settle, work


def test_what_waits_for_its_key_or_topic_and_what_has_expired_is_not_to_be_sent() -> None:
    hand = work()
    hand.shut = frozenset({("acme", "bills"), ("*", "paused")})

    going = claim(
        hand,
        event(1, "a", blocked=True),
        event(2, "b", topic="bills"),
        event(3, "b"),
        event(4, "c", topic="paused"),
        event(5, "d", expires_in=0.0),
        event(6, "e", expires_in=9.0),
        event(7, "f", topic="bills", tenant="bolt"),
        event(8, "f", tenant="bolt"),
    )

    assert going == [6, 7, 8]


def test_what_follows_a_refused_event_is_not_to_be_sent() -> None:
    hand = work()
    sent = claim(hand, event(1), event(2))
    publish(hand, Refused("too-large", "it is"))

    assert sent == [1, 2]
    assert claim(hand, event(3), event(4, "other"), number=2) == [4]


def test_what_was_claimed_under_a_lease_that_is_lost_is_not_to_be_sent() -> None:
    hand = work()
    claim(hand, event(1), event(2))
    publish(hand, ACCEPTED)
    hand.asking(0.0)
    settle(hand, Settled(lost=frozenset({0})))

    assert claim(hand, event(3), event(4, "other", shard=1), number=2) == [4]


def test_an_event_that_is_counted_before_it_is_sent_is_to_be_sent() -> None:
    hand = work()
    hand.suspect(Suspects(frozenset({1}), largest=1))

    assert claim(hand, event(1)) == [1]
