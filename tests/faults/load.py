"""The steps that tests of outages share."""

import time
from collections.abc import Sequence
from typing import Final

from tests.faults.checker import Report
from tests.faults.history import Faults
from tests.faults.rig import Rig

REST_SECONDS: Final = 90.0


def under_load(*rigs: Rig, seconds: float, **options: float) -> None:
    """Run two projectors and a workload on each, and wait until events flow."""
    for rig in rigs:
        for _ in range(2):
            rig.start_projector()
        rig.start_workload(seconds=seconds, **options)
    for rig in rigs:
        flows_on(rig)


def flows_on(rig: Rig, more: int = 100) -> None:
    before = rig.sent()
    rig.until(lambda: rig.sent() > before + more, "events flow", REST_SECONDS)


def catches_up(rig: Rig) -> None:
    """Wait until all is delivered that is there now."""
    last = int(rig.ask("SELECT coalesce(max(seq), 0) FROM outbox"))
    rig.until(lambda: rig.waiting(up_to=last) == 0, "what was there is delivered", REST_SECONDS)


def passes(rigs: Sequence[Rig], seconds: float) -> list[int]:
    """Wait out an outage; return the most memory that a projector of each rig took meanwhile."""
    end, most = time.monotonic() + seconds, [0] * len(rigs)

    def over() -> bool:
        for place, rig in enumerate(rigs):
            most[place] = max(most[place], *(each.memory() for each in rig.projectors))
        return time.monotonic() > end

    rigs[0].until(over, "the outage ends", seconds + 5)
    return most


def survives(rig: Rig, faults: Faults) -> Report:
    """Wait for rest and look at everything: no promise broken, no attempt burnt."""
    rig.come_to_rest(REST_SECONDS)
    rig.stop_projectors()
    report = rig.report(faults)
    rig.tell(str(report))
    assert not report.violations, report
    assert (rig.ever_troubled(), rig.attempts()) == (0, 0)
    return report
