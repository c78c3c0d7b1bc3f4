"""The checker can fail: each invariant is broken by hand and found, and only that one."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.faults.checker import check
from tests.faults.history import (
    Committed,
    Copy,
    Faults,
    History,
    LeaseChange,
    Row,
    StatusChange,
    Step,
)

HEADERS = (("event_id", "x"),)


def committed(n: int, key: str = "k", topic: str = "t") -> Committed:
    return Committed("a", key, n, f"{key}{n}", topic, f"sha-{n}")


def row(n: int, status: str = "SENT", **changes: object) -> Row:
    made = Row(f"k{n}", n, "a", "k", "t", status, 0, None, {"event_id": "x"})
    return made._replace(**changes)  # type: ignore[arg-type] # values of the named fields


def copy(n: int, offset: int, **changes: object) -> Copy:
    made = Copy(
        f"k{n}", ("a", "k", str(n)), "t", "t/0", offset, 100.0 + offset, f"sha-{n}", HEADERS
    )
    return made._replace(**changes)  # type: ignore[arg-type] # values of the named fields


def change(n: int, old: str = "NEW", new: str = "SENT", **changes: object) -> StatusChange:
    made = StatusChange(200.0, "p1", f"k{n}", old, new, 0, 0, "m1")
    return made._replace(**changes)  # type: ignore[arg-type] # values of the named fields


def lease(at: float, old: str | None, new: str | None, epoch: int, by: str) -> LeaseChange:
    before = None if at == 0 else epoch - (new is not None)
    return LeaseChange(at, by, ("all", 1), old, new, before, epoch, at and 10.0)


def good() -> History:
    """Two events of one key, each delivered once by the owner of the shard."""
    return History(
        committed=[committed(1), committed(2)],
        rolled_back=frozenset({"gone"}),
        acknowledged=frozenset({"k1"}),
        rows=[row(1), row(2)],
        log=[copy(1, 0), copy(2, 1)],
        changes=[change(1), change(2)],
        leases=[lease(0, None, "m1", 1, "p1")],
        claims={1: 1, 2: 1},
        members={"m1": "p1", "m2": "p2"},
        steps=[Step("p1", "answered", accepted=2), Step("p1", "settled", sent=2)],
    )


def broken(history: History) -> list[str]:
    return [found.invariant for found in check(history).violations]


def test_a_good_history_breaks_nothing() -> None:
    assert broken(good()) == []
    assert str(check(good())).endswith("no violation")


def test_a_late_duplicate_is_explained_by_a_fault() -> None:
    late = replace(good(), log=[copy(1, 0), copy(2, 1), copy(1, 2)])

    again = replace(late, faults=Faults(projector=1), claims={1: 2, 2: 1})

    assert broken(again) == []
    assert check(again).duplicates == 1


def test_a_durable_commit_that_the_database_lost_is_told_apart() -> None:
    assert broken(replace(good(), acknowledged=frozenset({"k1", "lost"}))) == ["A1"]


@pytest.mark.parametrize(
    "rows",
    [
        [row(1)],
        [row(1), row(2), row(3, message_id="gone")],
        [row(1), row(2, key="other")],
    ],
    ids=["missing", "rolled back", "other key"],
)
def test_capture_that_is_not_atomic_is_found(rows: Sequence[Row]) -> None:
    assert "I1" in broken(replace(good(), rows=rows))


def test_an_event_that_was_never_published_is_found() -> None:
    assert "I2" in broken(replace(good(), log=[copy(1, 0)]))


def test_a_failure_without_a_reason_is_found() -> None:
    silent = replace(
        good(), rows=[row(1), row(2, "FAILED")], changes=[change(1), change(2, new="FAILED")]
    )

    assert broken(replace(silent, log=[copy(1, 0)])) == ["I2"]


def test_a_ghost_is_found() -> None:
    ghost = copy(3, 2, message_id="gone")

    assert broken(replace(good(), log=[*good().log, ghost])) == ["I3"]


@pytest.mark.parametrize(
    "log",
    [
        [copy(2, 0), copy(1, 1)],
        [copy(1, 0), copy(2, 1, log="t/1")],
    ],
    ids=["swapped", "another partition"],
)
def test_a_broken_order_is_found(log: Sequence[Copy]) -> None:
    assert broken(replace(good(), log=log)) == ["I4"]


def test_a_broken_order_over_two_topics_is_found_by_the_brokers_time() -> None:
    history = replace(
        good(),
        committed=[committed(1), committed(2, topic="u")],
        rows=[row(1), row(2, topic="u")],
    )
    in_order = [copy(1, 0, at=100.0), copy(2, 0, topic="u", log="u/0", at=100.0)]
    swapped = [copy(1, 0, at=100.0), copy(2, 0, topic="u", log="u/0", at=99.9)]

    assert broken(replace(history, log=in_order)) == []
    assert broken(replace(history, log=swapped)) == ["I4"]


def test_a_gap_in_a_key_is_found() -> None:
    history = replace(good(), log=[copy(2, 1)])

    assert "I4" in broken(history)


@pytest.mark.parametrize(
    "changed",
    [
        copy(2, 1, sha256="other"),
        copy(2, 1, topic="u"),
        copy(2, 1, headers=(("event_id", "y"),)),
    ],
    ids=["body", "topic", "header"],
)
def test_changed_content_is_found(changed: Copy) -> None:
    assert broken(replace(good(), log=[copy(1, 0), changed])) == ["I7"]


def test_copies_with_different_headers_are_found() -> None:
    other = copy(1, 2, headers=(*HEADERS, ("sent-by", "p2")))
    history = replace(good(), claims=None, faults=Faults(projector=1))

    assert broken(replace(history, log=[*good().log, other])) == ["I7"]


def test_an_identity_that_changes_is_found() -> None:
    assert broken(replace(good(), log=[copy(1, 0), copy(2, 1, identity=("a", "k", "7"))])) == ["I8"]
    assert "I8" in broken(replace(good(), log=[*good().log, copy(3, 2, message_id=None)]))
    reused = [committed(1), committed(2)._replace(message_id="k1")]
    assert "I8" in broken(replace(good(), committed=reused))
    twice = [committed(1), committed(2), committed(2)._replace(message_id="k9")]
    assert "I8" in broken(replace(good(), committed=twice))


def test_a_lease_that_is_taken_before_it_expires_is_found() -> None:
    start = lease(0, None, "m1", 1, "p1")

    assert broken(replace(good(), leases=[start, lease(9.9, "m1", "m2", 2, "p2")])) == ["I9"]
    assert broken(replace(good(), leases=[start, lease(10.1, "m1", "m2", 2, "p2")])) == []
    assert broken(replace(good(), leases=[start, lease(9.9, "m1", None, 1, "p1")])) == []
    assert broken(replace(good(), leases=[start, lease(9.9, "m1", None, 1, "p2")])) == ["I9"]


def test_an_owner_without_a_new_epoch_is_found() -> None:
    start = lease(0, None, "m1", 1, "p1")
    given = lease(9.0, "m1", None, 1, "p1")

    assert broken(replace(good(), leases=[start, given, lease(9.5, None, "m2", 1, "p2")])) == ["I9"]
    assert "I9" in broken(replace(good(), leases=[start, lease(11, "m1", "m2", 0, "p2")]))


def test_a_settling_write_of_a_former_owner_is_found() -> None:
    stale = [change(1), change(2, projector="p2")]

    assert broken(replace(good(), changes=stale)) == ["I10"]
    assert broken(replace(good(), changes=[change(1), change(2, owner=None)])) == ["I10"]


def test_a_row_that_is_sent_without_an_acknowledgement_is_found() -> None:
    assert broken(replace(good(), changes=[change(1), change(2, at=100.5)])) == ["I11"]
    assert "I11" in broken(replace(good(), log=[copy(1, 0)]))
    steps = [Step("p1", "settled", sent=2), Step("p1", "answered", accepted=2)]
    assert broken(replace(good(), steps=steps)) == ["I11"]


@pytest.mark.parametrize(
    "changes",
    [
        [change(1), change(2), change(2, "SENT", "NEW"), change(2)],
        [change(1), change(2, "FAILED", "SENT")],
        [change(1), change(2, old_attempts=2, new_attempts=1)],
        [change(1)],
    ],
    ids=["left SENT", "unseen step", "attempts fell", "unseen write"],
)
def test_a_status_off_its_path_is_found(changes: Sequence[StatusChange]) -> None:
    assert set(broken(replace(good(), changes=changes))) == {"I12"}


def test_an_event_that_dies_too_early_is_found() -> None:
    history = replace(good(), log=[copy(1, 0)], changes=[change(1), change(2, new="DEAD")])

    assert broken(replace(history, rows=[row(1), row(2, "DEAD", error="size: 1", attempts=1)])) == [
        "I12"
    ]
    assert broken(replace(history, rows=[row(1), row(2, "DEAD", error="expired: 1")])) == []


def test_a_row_that_still_waits_is_found() -> None:
    assert broken(replace(good(), rows=[row(1), row(2, "NEW")], changes=[change(1)])) == ["I13"]


def test_duplicates_without_a_fault_are_found() -> None:
    again = replace(good(), log=[*good().log, copy(1, 2)])

    assert broken(replace(again, claims={1: 2, 2: 1})) == ["I14"]
    assert broken(replace(again, faults=Faults(projector=1))) == ["I14"]
    assert broken(replace(again, faults=Faults(broker=1))) == []
    assert broken(replace(again, steps=[*good().steps, Step("p1", "answered", unknown=1)])) == []


def test_a_message_that_no_claim_covers_is_found() -> None:
    assert broken(replace(good(), claims={1: 1})) == ["I14"]


def test_the_checker_imports_nothing_of_the_product() -> None:
    code = "import sys, tests.faults.checker; print('pillarbox' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert said.stdout == "False\n"
