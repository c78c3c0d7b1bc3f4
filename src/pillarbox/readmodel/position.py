"""Where a read model stands in the log: a number, and the gaps below it that may still be filled."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

_WRAP: Final = 1 << 32


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
        """Return the position after rows were read, beside transactions that were open then."""
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


class Snapshot(NamedTuple):
    """A snapshot of PostgreSQL: what is unfinished in it is listed, or not below `xmax`.

    Not everything that is open is listed: `xmax` follows the last transaction that has ended.
    """

    xmax: int
    listed: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> "Snapshot":
        """Read `xmin:xmax:xip,…`."""
        _, xmax, listed = text.split(":")
        return cls(int(xmax), frozenset(map(int, listed.split(",")) if listed else ()))

    def open_among(self, running: Iterable[int]) -> tuple[int, ...]:
        """Return those that are unfinished here, of all that ran before; they have 32 bits."""
        ids = map(self._whole, running)
        return tuple(sorted(xid for xid in ids if xid >= self.xmax or xid in self.listed))

    def open_below(self, own: int) -> tuple[int, ...]:
        """Return all that are unfinished here and older than a transaction that began later."""
        return tuple(sorted(self.listed | set(range(self.xmax, own))))

    def _whole(self, xid: int) -> int:
        """Return the 64 bits of an id that is near."""
        return self.xmax + (xid - self.xmax + _WRAP // 2) % _WRAP - _WRAP // 2
