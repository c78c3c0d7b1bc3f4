"""A database or a broker that is killed or frozen under load costs time, and nothing else."""

import signal

import pytest

from tests.faults.history import Faults
from tests.faults.load import REST_SECONDS, flows_on, passes, survives, under_load
from tests.faults.rig import Rig, side_by_side

OUTAGE_SECONDS = 30.0
MORE_MEMORY = 32 * 1024 * 1024

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]


def test_brokers_that_are_killed_and_frozen_burn_no_attempt_and_no_memory(rigs: list[Rig]) -> None:
    under_load(*rigs, seconds=300, writers=2, rate=60, padding=20_000)
    before = passes(rigs, 2)

    for rig in rigs:
        rig.broker.kill()
    killed = passes(rigs, OUTAGE_SECONDS)
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
    assert min(waiting) > 1_000
    for less, *more in zip(before, killed, frozen, strict=True):
        assert max(more) < less + MORE_MEMORY


@pytest.mark.parametrize("rig", ["kafka", "nats"], indirect=True)
def test_a_database_that_is_killed_under_load_leaves_no_ghost(rig: Rig) -> None:
    under_load(rig, seconds=300, writers=6, rate=300, not_durable=0.7)

    for _ in range(3):
        rig.postgres.kill()
        rig.postgres.restart()
        flows_on(rig, more=300)
    rig.stop_workload()

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
