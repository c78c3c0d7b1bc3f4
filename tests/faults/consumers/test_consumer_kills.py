"""Consumers that are killed, frozen and stopped again and again keep each effect once, in order."""

from collections import Counter
from collections.abc import Callable

import pytest

from tests.faults.consumers.conftest import Town
from tests.faults.consumers.drill import FREEZE, KILL, STOP, Drill
from tests.faults.consumers.grounds import BROKERS
from tests.faults.consumers.points import POINTS
from tests.faults.consumers.rig import Bank

STAYING = 2  # until all are killed at once
KILLS = 2
STOPS = 3
FREEZES = 1
TASKS = [*POINTS, *[KILL] * KILLS, *[STOP] * STOPS, *[FREEZE] * FREEZES]
WAITING = ["account-3"]
WAIT_SECONDS = 10.0
DRILL_SECONDS = 240.0

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]


@pytest.mark.parametrize("broker", BROKERS)
def test_kills_freezes_stops_and_replays_leave_each_effect_once(
    town: Callable[[str], Town], broker: str
) -> None:
    [bank] = town("kills").open([broker], flaky=17, waits=25)
    bank.close_accounts(WAITING)
    bank.start_publisher(rate=16)
    for _ in range(STAYING):
        bank.start_member()
    drill = Drill.of(bank, TASKS)

    drill.run(DRILL_SECONDS)
    replay(bank)
    bank.crew.until(lambda: bank.waited() > WAIT_SECONDS, "a key has waited for long")
    bank.open_accounts()
    bank.come_to_rest()
    bank.stop_members()

    report = bank.report(drill.faults)
    bank.tell(f"{report}\n{dict(drill.done)}\npartitions moved {bank.moves()} times")
    assert not report.violations, report
    assert report.duplicates > 0
    assert report.retried > 0
    assert drill.done == Counter(TASKS)
    if broker != "pulsar":  # which settles by itself who has which key, and tells nobody
        assert bank.moves() > 0  # shares changed hands all the while


def replay(bank: Bank) -> None:
    """Kill whoever runs, and let the next members get everything from the beginning, if they can."""
    bank.kill_members()
    if bank.ground.rewinds:
        bank.ground.rewind(bank.topic, bank.consumers)
    for _ in range(3):
        bank.start_member()
    bank.flows_on()
