"""Where a model stands in the log: numbers, gaps, and when a gap is forgotten."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox.readmodel.log import Beginning, Horizon
from pillarbox.readmodel.position import Doubt, Gap, Position, Snapshot


def test_without_open_transactions_what_is_missing_never_comes() -> None:
    assert Position(3).moved([5, 9], []) == Position(9)


def test_what_is_missing_beside_open_transactions_is_remembered() -> None:
    moved = Position(3).moved([5, 9], [70, 71])

    assert moved == Position(9, (Gap(4, 4, (70, 71)), Gap(6, 8, (70, 71))))
    assert [moved.covers(seq) for seq in range(3, 11)] == [
        True, False, True, False, False, False, True, False,
    ]  # fmt: skip


def test_a_row_that_fills_a_gap_leaves_the_rest_of_it() -> None:
    position = Position(9, (Gap(4, 8, (70,)),))

    assert position.moved([6], [70]).gaps == (Gap(4, 5, (70,)), Gap(7, 8, (70,)))


def test_a_gap_is_forgotten_when_none_of_its_transactions_is_open() -> None:
    position = Position(9, (Gap(4, 8, (70, 71)),))

    assert position.moved([], [71, 80]).gaps == (Gap(4, 8, (71,)),)
    assert position.moved([], [80]).gaps == ()


def test_what_lies_above_the_last_row_that_was_read_in_gaps_stays_as_it_was() -> None:
    position = Position(20, (Gap(4, 8, (70, 71)), Gap(12, 13, (70,))))

    cut = position.cut([4, 6], 2)

    assert cut == 6
    assert position.cut([4, 6], 3) is None
    assert position.cut([4, 21, 22], 2) is None
    assert position.moved([4, 6], [71], cut) == Position(
        20, (Gap(5, 5, (71,)), Gap(7, 8, (70, 71)), Gap(12, 13, (70,)))
    )


def test_a_position_is_stored_and_read_back() -> None:
    position = Position(9, (Gap(4, 8, (70, 71)),))

    assert Position.of(position.number, position.to_json()) == position


def test_a_number_that_may_be_lost_is_doubted_while_somebody_may_own_it() -> None:
    position = Position(2).doubting(3, [70, 71])

    moved = position.moved([5], [71, 80])

    assert moved == Position(5, (Gap(3, 4, (71, 80)),), (Doubt(3, (71,)),))
    assert position.missed([5], [71, 80]) == []
    assert moved.missed([], [80]) == [3]
    assert moved.moved([], [80]).doubts == ()


@pytest.mark.parametrize("late", [1, 3])
def test_a_row_that_has_the_doubted_number_or_an_older_one_ends_the_doubt(late: int) -> None:
    position = Position(5, (Gap(1, 1, (70,)), Gap(3, 4, (70,)))).doubting(3, [70])

    assert position.missed([late], []) == []
    assert position.moved([late], [70]).doubts == ()


def test_a_number_is_doubted_once_since_the_first_look() -> None:
    position = Position(2).doubting(3, [70])

    assert position.doubting(3, [80]) == position
    assert position.doubting(9, [80]).doubts == (Doubt(3, (70,)), Doubt(9, (80,)))
    assert position.doubting(9, [80]).trusting(3).doubts == (Doubt(9, (80,)),)


def test_a_doubt_is_stored_as_a_gap_without_a_number() -> None:
    position = Position(9, (Gap(4, 8, (70,)),)).doubting(4, [70, 71])

    assert position.to_json() == [[4, 8, [70]], [4, 3, [70, 71]]]
    assert Position.of(9, position.to_json()) == position


def test_a_transaction_above_the_last_that_ended_is_open_though_no_snapshot_lists_it() -> None:
    """Such a transaction was once taken for one that has ended, and its row was lost."""
    snapshot = Snapshot.parse("10:20:10,14")

    assert snapshot.open_among([9, 10, 12, 14, 19, 20, 25]) == (10, 14, 20, 25)
    assert snapshot.open_below(22) == (10, 14, 20, 21)
    assert Snapshot.parse("10:10:").open_among([]) == ()
    assert Snapshot.parse("10:10:").open_below(10) == ()


def test_the_ids_of_those_who_run_have_lost_their_upper_half() -> None:
    wrap = 1 << 32
    snapshot = Snapshot.parse(f"{3 * wrap - 5}:{3 * wrap + 2}:{3 * wrap - 5},{3 * wrap + 1}")

    running = [wrap - 5, wrap - 4, 1, 3]

    assert snapshot.open_among(running) == (3 * wrap - 5, 3 * wrap + 1, 3 * wrap + 3)


def test_a_log_reaches_its_first_row_or_not_or_nobody_knows() -> None:
    assert Beginning(1, last=9).reaches(1) is True
    assert Beginning(None).reaches(1) is True
    assert Beginning(7, last=9).reaches(7) is True
    assert Beginning(7, last=9).reaches(1) is False
    assert Beginning(None, last=9).reaches(1) is False
    assert Beginning(7, last=9, open=(70,)).reaches(1) is None


def test_a_reader_finds_the_next_row_unless_all_up_to_it_and_beyond_are_gone() -> None:
    assert Beginning(3, last=9).goes_on_from(2) is True
    assert Beginning(1, last=9).goes_on_from(2) is True  # a number above it may be a rollback's
    assert Beginning(None, last=2).goes_on_from(2) is True
    assert Beginning(None, last=3).goes_on_from(2) is False
    assert Beginning(4, last=9).goes_on_from(2) is False
    assert Beginning(4, last=9, open=(70,)).goes_on_from(2) is None


Transaction = tuple[list[int], bool]


@dataclass
class Miniature:
    """A log in miniature: who runs, who has ended, what is committed; a snapshot as PostgreSQL has it."""

    running: dict[int, list[int]] = field(default_factory=dict)
    committed: set[int] = field(default_factory=set)
    xid: int = 0
    last_ended: int = 0
    number: int = 0

    def act(self, act: str, data: st.DataObject) -> None:
        if act == "begin":
            self.xid += 1
            self.running[self.xid] = []
        elif self.running:
            xid = data.draw(st.sampled_from(sorted(self.running)))
            if act == "draw":
                self.number += 1
                self.running[xid].append(self.number)
            else:
                numbers = self.running.pop(xid)
                self.last_ended = max(self.last_ended, xid)
                self.committed |= set(numbers) if act == "commit" else set()

    def snapshot(self) -> Snapshot:
        xmax = self.last_ended + 1
        return Snapshot(xmax, frozenset(xid for xid in self.running if xid < xmax))


@given(st.data())
def test_every_committed_row_is_read_once_in_whatever_order_transactions_end(
    data: st.DataObject,
) -> None:
    """Others begin, draw and end also between the look at who runs and the reading."""
    log, position, read = Miniature(), Position(), list[int]()
    acts = st.lists(st.sampled_from(["begin", "draw", "draw", "commit", "roll back"]), max_size=8)
    for _ in range(data.draw(st.integers(1, 12))):
        for act in data.draw(acts):
            log.act(act, data)
        newest, running = max(log.committed, default=0), tuple(log.running)
        for act in data.draw(acts):
            log.act(act, data)
        most = data.draw(st.integers(1, 4))
        position = look(position, read, log, Horizon(newest, running), most)
    log.running.clear()
    while not log.committed <= set(read):
        position = look(position, read, log, Horizon(max(log.committed), ()), 3)

    assert sorted(read) == sorted(log.committed)


def look(
    position: Position, read: list[int], log: Miniature, horizon: Horizon, most: int
) -> Position:
    """Read as the log does: some rows that fill gaps, and if those were all, some above."""
    seqs = [seq for seq in sorted(log.committed) if position.number < seq <= horizon.newest]
    gaps = position.gaps
    late = [s for s in sorted(log.committed) if any(g.low <= s <= g.high for g in gaps)]
    found = [*late[:most], *seqs[:most]]
    cut = position.cut(found, most)
    found = [seq for seq in found if cut is None or seq <= cut]
    read += found
    return position.moved(found, log.snapshot().open_among(horizon.running), cut)
