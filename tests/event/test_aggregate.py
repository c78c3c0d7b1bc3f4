"""Aggregates without any session."""

import copy
import pickle
from dataclasses import dataclass

from pillarbox import AggregateRoot


@dataclass(slots=True)
class Stop(AggregateRoot):
    id: int


def test_a_copy_raises_events_for_itself_and_keeps_its_slots() -> None:
    stop = Stop(3)
    stop.add_event({"n": 1})
    copied = copy.copy(stop)
    copied.add_event({"n": 2})

    assert copied.id == 3
    assert stop.pending_events == ({"n": 1},)
    assert copied.pending_events == ({"n": 1}, {"n": 2})


def test_an_aggregate_keeps_its_events_over_a_pickle() -> None:
    stop = Stop(3)
    stop.add_event({"n": 1})

    copied = pickle.loads(pickle.dumps(stop))  # noqa: S301 - our own bytes

    assert copied.id == 3
    assert copied.pending_events == ({"n": 1},)
