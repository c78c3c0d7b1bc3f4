"""Lanes: the order of a key between reading and settling."""

from pillarbox.projector.lanes import Lanes, Stops
from tests.projector.events import event, numbers

LANE = ("acme", "k")


def test_what_failed_goes_again_before_what_waits() -> None:
    lanes = Lanes(together=True)
    for seq in (1, 2, 3):
        assert lanes.admit(event(seq))

    lanes.failed(event(3))
    lanes.failed(event(2))
    assert not lanes.admit(event(4))
    assert lanes.accepted(event(1)) == []

    assert list(lanes.resting) == [LANE]
    assert numbers(lanes.next_of(LANE)) == [2, 3, 4]


def test_a_lane_rests_only_when_nothing_of_it_is_in_flight() -> None:
    lanes = Lanes(together=True)
    lanes.admit(event(1))
    lanes.admit(event(2))

    lanes.failed(event(1))

    assert lanes.failing == {LANE}
    assert not lanes.resting
    lanes.failed(event(2))
    assert not lanes.failing
    assert list(lanes.resting) == [LANE]


def test_an_event_that_must_go_alone_goes_alone() -> None:
    lanes = Lanes(together=True)
    for seq in (1, 2, 3):
        lanes.admit(event(seq))
    for seq in (1, 2, 3):
        lanes.failed(event(seq))

    assert numbers(lanes.next_of(LANE, alone={1})) == [1]
    assert numbers(lanes.accepted(event(1))) == [2, 3]


def test_a_topic_waits_for_the_one_before_it() -> None:
    lanes = Lanes(together=True)

    assert lanes.admit(event(1))
    assert not lanes.admit(event(2, topic="bills"))
    assert not lanes.admit(event(3))
    assert numbers(lanes.accepted(event(1))) == [2]
    assert numbers(lanes.accepted(event(2))) == [3]


def test_a_reserved_lane_lets_nothing_else_go() -> None:
    lanes = Lanes(together=True)

    assert lanes.reserve(event(1))
    assert not lanes.reserve(event(2))
    assert not lanes.admit(event(2))
    assert numbers(lanes.accepted(event(1))) == [2]


def test_a_lane_without_events_is_forgotten() -> None:
    lanes = Lanes(together=False)
    lanes.admit(event(1))
    lanes.admit(event(2))

    lanes.accepted(event(1))
    lanes.accepted(event(2))

    assert LANE not in lanes


def test_a_stop_holds_what_is_behind_it_until_every_claim_knows() -> None:
    stops = Stops()
    stops.add(LANE, 5)

    assert stops.hold(event(6))
    assert not stops.hold(event(5))
    assert not stops.hold(event(6, "other"))
    stops.writing()
    stops.written(asked=3)
    stops.digested(2)
    assert stops.hold(event(6))
    stops.digested(3)
    assert not stops
