"""Whether a log still has all that a model must read: what can be known is decided here."""

from collections.abc import Callable
from typing import Final

from pillarbox.errors import HistoryIncomplete, HistoryUndecided
from pillarbox.readmodel.checkpoint import Generation
from pillarbox.readmodel.log import Beginning

FIRST: Final = 1


def refuse_cut(name: str, beginning: Beginning, first: int) -> None:
    """Refuse a log that does not begin with its first row.

    Raise `HistoryUndecided` while an open transaction may own what is missing.
    """
    reaches = beginning.reaches(first)
    if reaches is None:
        raise HistoryUndecided(name, beginning.oldest)
    if not reaches:
        oldest = beginning.oldest
        found = "it is empty" if oldest is None else f"it begins at position {oldest}"
        raise HistoryIncomplete(name, found, "begin with a snapshot query")


def refuse_hole(at: Generation, beginning: Beginning) -> None:
    """Refuse a log that has lost rows which a generation has not read.

    Raise `HistoryUndecided` while an open transaction may own what is missing.
    """
    if at.first_position is None and not at.position.number:
        return  # a snapshot query saw an empty log: which numbers it stands for nobody knows
    read = read_up_to(at)
    goes_on = beginning.goes_on_from(read)
    if goes_on is None:
        raise HistoryUndecided(at.name, beginning.oldest)
    if not goes_on:
        raise HistoryIncomplete(
            at.name,
            f"the model stands at position {read} and the log {_begins(beginning)}",
            "build it again from a snapshot query",
        )


def read_up_to(at: Generation) -> int:
    """Return the number up to which a generation has read all that it is to read."""
    return max(at.position.number, (at.first_position or FIRST) - 1)


def tell_missed(name: str, number: int) -> HistoryIncomplete:
    """Say that a number never came with which a model had to go on, as is known by now."""
    return HistoryIncomplete(
        name,
        f"the model stood at position {number - 1} and number {number} never came",
        "build it again from a snapshot query",
    )


class Undecided:
    """Decide about one missing number after the other, however many transactions come and go.

    Whoever owns a number that was missing at the first look was open then.
    """

    def __init__(self) -> None:
        self._number: int | None = None
        self._open: frozenset[int] = frozenset()

    def judge(self, number: int, beginning: Beginning, refuse: Callable[[Beginning], None]) -> None:
        """Refuse a log, or none; while that is undecided, remember who was open at the first look."""
        if number == self._number:
            still = tuple(xid for xid in beginning.open if xid in self._open)
            beginning = beginning._replace(open=still)
        self._number = None
        try:
            refuse(beginning)
        except HistoryUndecided:
            self._number, self._open = number, frozenset(beginning.open)
            raise


def _begins(beginning: Beginning) -> str:
    if beginning.oldest is None:
        return f"is empty after number {beginning.last}"
    return f"begins at position {beginning.oldest}"
