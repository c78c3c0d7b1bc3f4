"""A database or a broker that is killed or frozen under load costs time, and nothing else."""

import signal

import pytest

from tests.faults.history import Faults
from tests.faults.load import REST_SECONDS, flows_on, passes, survives, under_load
from tests.faults.rig import Rig, side_by_side

OUTAGE_SECONDS = 30.0
MORE_MEMORY = 32 * 1024 * 1024
# What comes during a pause fits into a batch.
PAUSE, BATCH = 0.2, 2_000

MANY = 1_000

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]


def test_brokers_that_are_killed_and_frozen_burn_no_attempt_and_no_memory(rigs: list[Rig]) -> None:
    under_load(*rigs, seconds=300, writers=2, rate=60, padding=20_000)
    before = passes(rigs, 2)

    for rig in rigs:
        rig.broker.kill()
    killed = passes(rigs, OUTAGE_SECONDS)
    for rig in rigs:  # busy writers need longer for as much
        rig.until(lambda: rig.waiting() > MANY, "a backlog", REST_SECONDS)  # noqa: B023
    waiting = [rig.waiting() for rig in rigs]
    side_by_side(lambda rig: rig.broker.restart(), rigs)
    for rig in rigs:
        flows_on(rig)

    for rig in rigs:
        rig.broker.freeze()
    frozen = passes(rigs, OUTAGE_SECONDS)
    for rig in rigs:
        rig.broker.thaw()
        rig.stop_workload()

    assert all(projector.running for rig in rigs for projector in rig.projectors)
    for rig, *seen in zip(rigs, waiting, before, killed, frozen, strict=True):
        # Each outage may leave the messages of every projector unanswered more than once.
        survives(rig, Faults(broker=40))
        rig.tell("{:,} events waited; memory before {:,}, killed {:,}, frozen {:,}".format(*seen))
    assert min(waiting) > MANY
    for less, *more in zip(before, killed, frozen, strict=True):
        assert max(more) < less + MORE_MEMORY


@pytest.mark.parametrize("rig", ["kafka", "nats"], indirect=True)
def test_a_database_that_is_killed_under_load_leaves_no_ghost(rig: Rig) -> None:
    under_load(rig, seconds=300, writers=6, rate=300, not_durable=1.0)

    for round_ in range(4):
        if round_ == 3:
            a_tail_grows(rig)
        rig.postgres.kill()
        rig.postgres.restart()
        thaw(rig)
        flows_on(rig, more=300)
    rig.stop_workload()

    assert all(projector.running for projector in rig.projectors)
    assert survives(rig, Faults(database=4)).lost > 0


def a_tail_grows(rig: Rig) -> None:
    """Freeze the projectors, whose claims wait for the disk; what is committed now is lost."""
    for projector in rig.projectors:
        projector.signal(signal.SIGSTOP)
    enough = rig.visible() + 20
    rig.until(lambda: rig.visible() > enough, "commits that do not wait for the disk", REST_SECONDS)


def thaw(rig: Rig) -> None:
    for projector in rig.projectors:
        projector.signal(signal.SIGCONT)


@pytest.mark.parametrize("rig", ["nats"], indirect=True)
def test_a_database_that_dies_between_read_and_send_leaves_no_ghost(rig: Rig) -> None:
    rig.start_workload(seconds=150, writers=6, rate=200, not_durable=1.0)
    points = ("after-read", "after-claim", "before-send", "after-send", "after-ack")

    for point in points:
        # Only the first read finds a backlog, which is claimed in a statement of its own.
        dies_at(rig, f"{point}:{1 if point == 'after-read' else 3}")
        flows_on(rig, more=20)
        rig.projectors[-1].signal(signal.SIGTERM)
        assert rig.projectors[-1].wait() == 0, rig.projectors[-1].said()
    rig.stop_workload()
    rig.start_projector()

    # What had been read and was not claimed yet is lost with the tail.
    assert survives(rig, Faults(database=len(points))).lost > 10


@pytest.mark.parametrize("rig", ["nats"], indirect=True)
def test_a_claim_that_does_not_wait_for_the_disk_leaves_a_ghost(rig: Rig) -> None:
    rig.start_workload(seconds=150, writers=6, rate=200, not_durable=1.0)

    for _ in range(2):  # a renewal of leases may have written the tail to disk once
        dies_at(rig, "after-ack:3", hasty=1)
    rig.stop_workload()
    rig.come_to_rest(REST_SECONDS)
    rig.stop_projectors()

    report = rig.report(Faults(database=2))
    assert "I3" in {found.invariant for found in report.violations}, report


def dies_at(rig: Rig, point: str, **options: float) -> None:
    """Let the database die when a projector comes to a point, and restart it.

    What the projector reads is not on disk yet: it pauses before it, and nobody else writes there.
    """
    victim = rig.postgres.pid
    rig.start_projector(point, victim=victim, batch=BATCH, pause=PAUSE, **options)
    rig.until(lambda: not rig.postgres.running, f"the database dies {point}", REST_SECONDS)
    rig.postgres.kill()  # what the postmaster has left behind
    rig.postgres.restart()
