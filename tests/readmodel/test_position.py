"""Where a model stands in the log: numbers, gaps, and when a gap is forgotten."""

from hypothesis import given
from hypothesis import strategies as st

from pillarbox.readmodel.log import Beginning
from pillarbox.readmodel.position import Gap, Position, open_transactions


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


def test_a_position_is_stored_and_read_back() -> None:
    position = Position(9, (Gap(4, 8, (70, 71)),))

    assert Position.of(position.number, position.to_json()) == position


def test_a_snapshot_lists_the_open_transactions() -> None:
    assert open_transactions("10:20:10,14") == (10, 14)
    assert open_transactions("10:10:") == ()
    assert open_transactions(None) == ()


def test_a_log_reaches_its_first_row_or_not_or_nobody_knows() -> None:
    assert Beginning(1, drawn=True).reaches(1) is True
    assert Beginning(None, drawn=False).reaches(1) is True
    assert Beginning(7, drawn=True).reaches(7) is True
    assert Beginning(7, drawn=True).reaches(1) is False
    assert Beginning(None, drawn=True).reaches(1) is False
    assert Beginning(7, drawn=True, open=(70,)).reaches(1) is None


Transaction = tuple[list[int], bool]


@given(st.data())
def test_every_committed_row_is_read_once_in_whatever_order_transactions_end(
    data: st.DataObject,
) -> None:
    """A log in miniature: transactions draw numbers, end late, and a cursor reads in between."""
    position, read, number = Position(), list[int](), 0
    open_now: dict[int, list[int]] = {}
    committed: set[int] = set()
    xid = 0
    for _ in range(data.draw(st.integers(1, 40))):
        act = data.draw(st.sampled_from(["begin", "draw", "commit", "roll back", "read"]))
        if act == "begin":
            xid += 1
            open_now[xid] = []
        elif act == "draw" and open_now:
            number += 1
            open_now[data.draw(st.sampled_from(sorted(open_now)))].append(number)
        elif act in ("commit", "roll back") and open_now:
            ended = open_now.pop(data.draw(st.sampled_from(sorted(open_now))))
            committed |= set(ended) if act == "commit" else set()
        elif act == "read":
            position, read = look(position, read, committed, open_now, data.draw(st.integers(1, 4)))
    open_now.clear()
    while not committed <= set(read):
        position, read = look(position, read, committed, open_now, 3)

    assert sorted(read) == sorted(committed)


def look(
    position: Position,
    read: list[int],
    committed: set[int],
    open_now: dict[int, list[int]],
    most: int,
) -> tuple[Position, list[int]]:
    """Read as the statement does: some rows above the number, and all that fills gaps."""
    fresh = sorted(seq for seq in committed if seq > position.number)[:most]
    late = [s for s in sorted(committed) if any(g.low <= s <= g.high for g in position.gaps)]
    return position.moved([*late, *fresh], list(open_now)), [*read, *late, *fresh]
