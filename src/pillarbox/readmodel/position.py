"""Where a read model stands in the log: a number, and the gaps below it that may still be filled."""

from collections.abc import Collection, Iterable, Iterator, Sequence
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

    def owners(self, live: Collection[int], *, unseen: bool) -> tuple[int, ...]:
        """Return who may still own a number in it: all, as long as nobody has looked."""
        return self.open if unseen else tuple(xid for xid in self.open if xid in live)


class Doubt(NamedTuple):
    """The number that a model had to go on with and did not find, and who may own it.

    Nothing older was left in the log: if none of the transactions commits it, rows may be lost.
    """

    number: int
    open: tuple[int, ...]

    def is_answered(self, seqs: Iterable[int]) -> bool:
        """Tell whether rows that were read have the number, or an older one."""
        return any(seq <= self.number for seq in seqs)


class Position(NamedTuple):
    """All rows up to the number were applied, except those in gaps."""

    number: int = 0
    gaps: tuple[Gap, ...] = ()
    doubts: tuple[Doubt, ...] = ()

    def covers(self, seq: int) -> bool:
        """Tell whether a row that is committed has been applied."""
        return seq <= self.number and not any(gap.low <= seq <= gap.high for gap in self.gaps)

    def cut(self, seqs: Sequence[int], most: int) -> int | None:
        """Return the last number in a gap, if as many were found as may be read: there may be more.

        Nothing above it may be applied yet: it may go on with a key that one of them is about.
        """
        late = sorted(seq for seq in seqs if seq <= self.number)
        return late[-1] if len(late) >= most else None

    def moved(
        self, seqs: Sequence[int], still_open: Sequence[int], cut: int | None = None
    ) -> "Position":
        """Return the position after rows were read, beside transactions that were open then.

        Gaps above a `cut` were not looked at.
        """
        live = frozenset(still_open)
        late = [seq for seq in seqs if seq <= self.number]
        fresh = sorted(seq for seq in seqs if seq > self.number)
        gaps = [
            left._replace(open=opened)
            for gap in self.gaps
            for left in gap.without(late)
            if (opened := gap.owners(live, unseen=cut is not None and left.low > cut))
        ]
        if fresh and live:
            whole = Gap(self.number + 1, fresh[-1], tuple(sorted(live)))
            gaps += whole.without(fresh)
        doubts = tuple(doubt for doubt in self._left(seqs, still_open) if doubt.open)
        return Position(fresh[-1] if fresh else self.number, tuple(gaps), doubts)

    def missed(self, seqs: Sequence[int], still_open: Sequence[int]) -> list[int]:
        """Return the doubted numbers that are in none of the rows read, and that nobody owns now."""
        return [doubt.number for doubt in self._left(seqs, still_open) if not doubt.open]

    def doubting(self, number: int, opened: Sequence[int]) -> "Position":
        """Return it with a doubt about a number; an older one about the same number knows more."""
        if any(doubt.number == number for doubt in self.doubts):
            return self
        return self._replace(doubts=(*self.doubts, Doubt(number, tuple(opened))))

    def trusting(self, number: int) -> "Position":
        """Return it without a doubt about a number."""
        return self._replace(doubts=tuple(d for d in self.doubts if d.number != number))

    def _left(self, seqs: Sequence[int], still_open: Sequence[int]) -> Iterator[Doubt]:
        """Return the doubts that rows do not answer, with those who may still own the numbers."""
        live = frozenset(still_open)
        for doubt in self.doubts:
            if not doubt.is_answered(seqs):
                yield doubt._replace(open=tuple(xid for xid in doubt.open if xid in live))

    def to_json(self) -> list[Any]:
        """Return the gaps as they are stored; a doubt is one that ends before it begins."""
        gaps = [[gap.low, gap.high, list(gap.open)] for gap in self.gaps]
        return gaps + [[doubt.number, doubt.number - 1, list(doubt.open)] for doubt in self.doubts]

    @classmethod
    def of(cls, number: int, gaps: Sequence[Sequence[Any]]) -> "Position":
        """Read a stored position."""
        found = [Gap(low, high, tuple(xids)) for low, high, xids in gaps]
        return cls(
            number,
            tuple(gap for gap in found if gap.low <= gap.high),
            tuple(Doubt(gap.low, gap.open) for gap in found if gap.low > gap.high),
        )


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
