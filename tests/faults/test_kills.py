"""Projectors that are killed, frozen and stopped again and again lose nothing and keep the order."""

import pytest

from tests.faults.drill import FREEZE, KILL, STOP, Drill
from tests.faults.history import Faults
from tests.faults.points import POINTS
from tests.faults.rig import Rig

# On each of five brokers: in all, each point is hit twenty times.
EACH_POINT = 4
KILLS = 4
FREEZES = 2
STOPS = 2
DRILL_SECONDS = 300.0
REST_SECONDS = 60.0

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]


def test_kills_freezes_and_stops_break_no_promise(rig: Rig) -> None:
    rig.start_workload(seconds=DRILL_SECONDS, writers=6, rate=300, keys=60)
    drill = Drill.of(rig, each_point=EACH_POINT, kills=KILLS, freezes=FREEZES, stops=STOPS)

    drill.run(DRILL_SECONDS)
    rig.stop_workload()
    for _ in range(2):
        rig.start_projector()
    rig.come_to_rest(REST_SECONDS)
    rig.stop_projectors()

    report = rig.report(Faults(projector=drill.faults))
    rig.tell(f"{report}\n{drill.kills} kills with a claim open: {dict(drill.done)}")
    assert not report.violations, report
    assert (rig.ever_troubled(), rig.unexplained_attempts()) == (0, 0)
    assert all(drill.done[point] >= EACH_POINT for point in POINTS), drill.done
    assert all(drill.hits(point) >= EACH_POINT for point in POINTS), drill.done
    assert drill.done[KILL] >= KILLS + FREEZES
    assert (drill.done[FREEZE], drill.done[STOP]) == (FREEZES, STOPS)
    assert drill.kills >= 20  # a hundred on all brokers


def test_without_a_fault_nothing_is_sent_twice(rigs: list[Rig]) -> None:
    for rig in rigs:
        for _ in range(3):
            rig.start_projector()
        rig.start_workload(seconds=8, writers=3, rate=100, keys=60)

    for rig in rigs:
        rig.come_to_rest(REST_SECONDS)
        rig.stop_projectors()

    for rig in rigs:
        report = rig.report(Faults())
        rig.tell(str(report))
        assert not report.violations, report
        assert (rig.ever_troubled(), rig.attempts()) == (0, 0)
        assert report.duplicates == 0 or report.unanswered, report
