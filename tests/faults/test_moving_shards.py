"""Shards that move under traffic, as projectors come and go, leave no gap in order or delivery."""

import signal

import pytest

from tests.faults.checker import first_copies
from tests.faults.history import Faults, copy_of
from tests.faults.process import Process
from tests.faults.rig import LEASE, Rig

ROUNDS = 3
REST_SECONDS = 60.0
_BEGAN = "SELECT json_object_agg(id, extract(epoch FROM created_at)) FROM outbox"

pytestmark = [pytest.mark.faults, pytest.mark.timeout(240)]


# A broker that keeps each copy: one that was sent before its shard moved would come twice.
@pytest.mark.parametrize("rig", ["redis"], indirect=True)
def test_a_projector_that_joins_and_leaves_under_traffic_is_not_noticed(rig: Rig) -> None:
    steady = rig.start_projector()
    rig.until(lambda: rig.leases(steady) == 64, "the first projector owns all", REST_SECONDS)
    rig.start_workload(seconds=300, writers=4, rate=400, keys=60)

    for _ in range(ROUNDS):
        joins_and_leaves(rig, rig.start_projector())
        rig.until(lambda: rig.leases(steady) == 64, "all shards have moved back", REST_SECONDS)
    rig.stop_workload()
    rig.come_to_rest(REST_SECONDS)
    rig.stop_projectors()

    report = rig.report(Faults())
    began: dict[str, float] = rig.ask(_BEGAN)
    first = first_copies([copy_of(message) for message in rig.ground.read()])
    longest = max(first[event_id].at - at for event_id, at in began.items())
    rig.tell(f"{report}\nlongest delivery {longest:.3f} s")
    assert not report.violations, report
    assert report.duplicates == 0 or report.unanswered, report
    assert (rig.ever_troubled(), rig.attempts()) == (0, 0)
    # 64 that come, and 32 for each way of each round: none expired, each was handed over.
    assert report.changed_hands >= 64 + 2 * ROUNDS * 32
    assert longest < 2 * LEASE  # from the beginning of a transaction, on a busy machine


def joins_and_leaves(rig: Rig, guest: Process) -> None:
    rig.until(lambda: rig.leases(guest) == 32, "half of the shards have moved", REST_SECONDS)
    rig.until(lambda: guest.lines("settled") > 5, "the second one delivers", REST_SECONDS)
    guest.signal(signal.SIGTERM)
    assert guest.wait() == 0, guest.said()
