"""A database or a broker that is killed or frozen under load costs time, and nothing else."""

import signal
import time

import pytest

from tests.faults.history import Faults
from tests.faults.rig import Rig

OUTAGE_SECONDS = 30.0
REST_SECONDS = 90.0
MORE_MEMORY = 32 * 1024 * 1024

pytestmark = [pytest.mark.faults, pytest.mark.timeout(360)]


def under_load(rig: Rig, seconds: float, **options: float) -> None:
    """Run two projectors and a workload, and wait until events flow."""
    for _ in range(2):
        rig.start_projector()
    rig.start_workload(seconds=seconds, **options)
    flows_on(rig)


def flows_on(rig: Rig, more: int = 300) -> None:
    before = rig.sent()
    rig.until(lambda: rig.sent() > before + more, "events flow", REST_SECONDS)


def passes(rig: Rig, seconds: float) -> int:
    """Wait out an outage; return the most memory that a projector took meanwhile."""
    end, most = time.monotonic() + seconds, 0

    def over() -> bool:
        nonlocal most
        most = max(most, *(projector.memory() for projector in rig.projectors))
        return time.monotonic() > end

    rig.until(over, "the outage ends", seconds + 5)
    return most


def survives(rig: Rig, faults: Faults) -> None:
    """Wait for rest and look at everything: no promise broken, no attempt burnt."""
    rig.come_to_rest(REST_SECONDS)
    rig.stop_projectors()
    report = rig.report(faults)
    rig.tell(str(report))
    assert not report.violations, report
    assert (rig.troubled(), rig.attempts()) == (0, 0)


def test_a_broker_that_is_killed_and_frozen_burns_no_attempt_and_no_memory(rig: Rig) -> None:
    under_load(rig, seconds=2 * OUTAGE_SECONDS + 20, rate=200, padding=4_000)
    before = passes(rig, 2)

    rig.broker.kill()
    killed = passes(rig, OUTAGE_SECONDS)
    assert rig.waiting() > 1_000
    rig.broker.restart()
    flows_on(rig)

    rig.broker.freeze()
    frozen = passes(rig, OUTAGE_SECONDS)
    rig.broker.thaw()

    assert all(projector.running for projector in rig.projectors)
    # Each outage may leave the messages of every projector unanswered more than once.
    survives(rig, Faults(broker=40))
    rig.tell(f"memory before {before:,}, broker killed {killed:,}, frozen {frozen:,} bytes")
    assert max(killed, frozen) < before + MORE_MEMORY


def test_a_database_that_is_killed_under_load_leaves_no_ghost(rig: Rig) -> None:
    under_load(rig, seconds=30, writers=6, rate=300, not_durable=0.7)

    for _ in range(3):
        rig.postgres.kill()
        rig.postgres.restart()
        flows_on(rig)

    assert all(projector.running for projector in rig.projectors)
    survives(rig, Faults(database=3))


@pytest.mark.parametrize("rig", ["nats"], indirect=True)
def test_a_database_that_dies_between_read_and_send_leaves_no_ghost(rig: Rig) -> None:
    rig.start_workload(seconds=150, writers=6, rate=200, not_durable=1.0)
    points = ("after-read", "after-claim", "before-send", "after-send", "after-ack")

    for point in points:
        projector = rig.start_projector(f"{point}:5", victim=rig.postgres.pid)
        rig.until(lambda: not rig.postgres.running, f"the database dies {point}", REST_SECONDS)
        rig.postgres.kill()  # what the postmaster has left behind
        rig.postgres.restart()
        flows_on(rig, more=20)
        projector.signal(signal.SIGTERM)
        assert projector.wait() == 0, projector.said()
    rig.stop_workload()
    rig.start_projector()

    survives(rig, Faults(database=len(points)))
