"""Where a read model stands in the log: a number, and the gaps below it that may still be filled."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple


class Gap(NamedTuple):
    """Numbers that were missing when they were passed, and the transactions that may own them."""

    low: int
    high: int
    open: tuple[int, ...]

    def without(self, numbers: Iterable[int]) -> Iterator["Gap"]:
        """Return what is left of the gap when some of its numbers were found."""
        low = self.low
        for number in sorted(n for n in numbers if self.low <= n <= self.high):
            if low < number:
                yield Gap(low, number - 1, self.open)
            low = number + 1
        if low <= self.high:
            yield Gap(low, self.high, self.open)


class Position(NamedTuple):
    """All rows up to the number were applied, except those in gaps."""

    number: int = 0
    gaps: tuple[Gap, ...] = ()

    def covers(self, seq: int) -> bool:
        """Tell whether a row that is committed has been applied."""
        return seq <= self.number and not any(gap.low <= seq <= gap.high for gap in self.gaps)

    def moved(self, seqs: Sequence[int], still_open: Sequence[int]) -> "Position":
        """Return the position after rows were read in a snapshot that lists open transactions."""
        live = frozenset(still_open)
        late = [seq for seq in seqs if seq <= self.number]
        fresh = sorted(seq for seq in seqs if seq > self.number)
        gaps = [
            left._replace(open=opened)
            for gap in self.gaps
            for left in gap.without(late)
            if (opened := tuple(xid for xid in gap.open if xid in live))
        ]
        if fresh and live:
            whole = Gap(self.number + 1, fresh[-1], tuple(sorted(live)))
            gaps += whole.without(fresh)
        return Position(fresh[-1] if fresh else self.number, tuple(gaps))

    def to_json(self) -> list[Any]:
        """Return the gaps as they are stored."""
        return [[gap.low, gap.high, list(gap.open)] for gap in self.gaps]

    @classmethod
    def of(cls, number: int, gaps: Sequence[Sequence[Any]]) -> "Position":
        """Read a stored position."""
        return cls(number, tuple(Gap(low, high, tuple(xids)) for low, high, xids in gaps))


def open_transactions(snapshot: str | None) -> tuple[int, ...]:
    """Return the transactions that a snapshot of PostgreSQL (`xmin:xmax:xip,…`) lists as open."""
    listed = (snapshot or "::").split(":")[2]
    return tuple(map(int, listed.split(","))) if listed else ()
