"""A topic that is not to be had for longer: its events leave the hand, and keep nothing waiting."""

from pillarbox.bus.outcome import ACCEPTED, Unavailable
from pillarbox.projector.breaker import LONG_PAUSE
from pillarbox.projector.work import Work
from tests.projector.events import claim, event, numbers, publish, send, settle, work

MISSING = Unavailable("no-topic", "in this test", topic="gone")


def failing(hand: Work) -> float:
    """Let the only topic in hand fail again and again; return when it counts as lasting."""
    now = 0.0
    while not hand.to_settle:
        now = max(now, hand.topics["gone"].again_at if hand.topics else now)
        publish(hand, MISSING, now=now)
    return now


def test_what_rests_for_a_topic_that_failed_for_seconds_is_set_aside_by_itself() -> None:
    """It stayed in hand: its shard was never given back, and its claim never ended."""
    hand = work()
    claim(hand, event(1, topic="gone"), event(2))

    now = failing(hand)

    settlement = settle(hand)
    assert numbers(settlement.waiting) == [1]
    assert numbers(settlement.aside) == [2]
    assert len(hand.hand) == 0
    assert LONG_PAUSE <= now <= 4.0


def test_a_topic_that_failed_once_keeps_its_events_in_hand() -> None:
    hand = work()
    claim(hand, event(1, topic="gone"))

    publish(hand, MISSING)

    assert not hand.to_settle
    assert send(hand, now=1.0) == [1]


def test_what_comes_for_such_a_topic_is_set_aside_with_the_next_answer() -> None:
    hand = work()
    claim(hand, event(1, topic="gone"))
    now = failing(hand)
    settle(hand)

    claim(hand, event(3, "b", topic="gone"), event(4, "c"), number=2, now=now)
    sent = publish(hand, ACCEPTED, now=now)

    settlement = settle(hand)
    assert sent == [4]
    assert numbers(settlement.waiting) == [3]


def test_its_answer_closes_it_again() -> None:
    hand = work()
    claim(hand, event(1, topic="gone"))
    now = failing(hand)
    settle(hand)
    claim(hand, event(1, topic="gone"), number=2, now=now)

    publish(hand, ACCEPTED, now=hand.topics["gone"].again_at)

    assert numbers(settle(hand).sent) == [1]
    assert not hand.topics
