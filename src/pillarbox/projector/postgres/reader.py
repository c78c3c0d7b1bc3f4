"""What has been read and what has not: the decisions of docs/decisions/0008, without a database."""

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pillarbox.projector.turns import Pair, Turns

# Rows that a pair is asked for at least: fewer would cost a probe for each row.
ROWS_OF_A_TURN: Final = 16


class Snapshot(NamedTuple):
    """A snapshot of PostgreSQL: ids from `xmax` on, and those listed, were not finished."""

    xmax: str
    open: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> "Snapshot":
        """Read `xmin:xmax:xip,…`."""
        _, xmax, listed = text.split(":")
        return cls(xmax, tuple(listed.split(",")) if listed else ())


Row = tuple[Any, ...]
"""A row of a claim: its number, shard, tenant and turn (0: the feed gave it), then the event."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the next claim reads."""

    since: Snapshot
    pairs: Sequence[Pair]
    fits: int
    quota: int


class Reader:
    """Keep the snapshot up to which everything was seen, and the turns for what was not read."""

    def __init__(self) -> None:
        self.since: Snapshot | None = None
        self.turns = Turns()
        self._known: set[int] = set()
        self._met: dict[int, tuple[int, str]] = {}
        self._gone_back: set[tuple[int, str]] = set()

    def forget(self) -> None:
        """Begin anew: the backend is not known."""
        self.since, self.turns, self._known = None, Turns(), set()

    def undiscovered(self, shards: Iterable[int]) -> list[int]:
        """Name the shards whose backlog is not known; forget those that are gone."""
        owned = set(shards)
        self.lose(self._known - owned)
        return sorted(owned - self._known)

    def lose(self, shards: Iterable[int]) -> None:
        """Know nothing of these shards any more."""
        if gone := set(shards):
            self.turns.forget(gone)
            self._known -= gone

    def discovered(self, shards: Iterable[int], snapshot: Snapshot, pairs: Iterable[Pair]) -> None:
        """Take in the backlog of shards; an earlier snapshot stays, since it covers more."""
        self._known |= set(shards)
        if self.since is None:
            self.since = snapshot
        for pair in pairs:
            self.turns.add(*pair)

    def swept(self, snapshot: Snapshot, pairs: Iterable[Pair]) -> None:
        """Take in pairs with rows that are newer than the feed could tell."""
        self.since = snapshot
        for pair in pairs:
            self.turns.add(*pair)

    def plan(self, since: Snapshot, limit: int, passed_over: Container[str]) -> Plan:
        """Choose what the next claim reads: what is new, and mostly the backlog if there is one."""
        self._gone_back.clear()
        pairs = self.turns.next(max(1, limit // ROWS_OF_A_TURN), passed_over)
        if not pairs:
            return Plan(since, (), limit, 1)
        fits = limit // 8
        return Plan(since, pairs, fits, max(1, (limit - fits) // len(pairs)))

    def digest(
        self,
        plan: Plan,
        snapshot: Snapshot,
        rows: Sequence[Row],
        *,
        in_hand: Container[int],
        passed_over: Container[str],
    ) -> list[int]:
        """Note what a claim has read; return the places of the rows to take, by number."""
        self.since = snapshot
        self._read_again_what_was_met(in_hand)
        taken: dict[int, int] = {}
        counts = dict.fromkeys(self._still_due(plan.pairs), 0)
        ends: dict[tuple[int, str], int] = {}
        for place, row in enumerate(rows):
            seq, shard, tenant_id = row[0], row[1], row[2]
            if row[3]:
                where = shard, tenant_id
                if where in counts:
                    counts[where] += 1
                    ends[where] = seq  # a pair's rows come by number
                    taken[seq] = place
            elif seq in in_hand:
                self._met[seq] = shard, tenant_id
            elif self._takes(seq, shard, tenant_id, passed_over):
                taken.setdefault(seq, place)
        for where, count in counts.items():
            if count < plan.quota:
                self.turns.exhausted(*where)
            else:
                self.turns.advance(*where, ends[where])
        return [taken[seq] for seq in sorted(taken) if seq not in in_hand]

    def _still_due(self, pairs: Sequence[Pair]) -> Iterator[tuple[int, str]]:
        """Leave out pairs that are lost, or of which rows are to be read again, in order."""
        for shard, tenant_id, after in pairs:
            where = shard, tenant_id
            if self.turns.after(*where) == after and where not in self._gone_back:
                yield where

    def _read_again_what_was_met(self, in_hand: Container[int]) -> None:
        """Look again for rows of the feed that were in hand: they may have come back before."""
        for seq in [seq for seq in self._met if seq not in in_hand]:
            self.read_again(*self._met.pop(seq), seq)

    def _takes(self, seq: int, shard: int, tenant_id: str, passed_over: Container[str]) -> bool:
        """Decide on a row of the feed."""
        if tenant_id in passed_over:
            self.turns.add(shard, tenant_id, seq - 1)
            return False
        after = self.turns.after(shard, tenant_id)
        return after is None or seq <= after

    def read_again(self, shard: int, tenant_id: str, seq: int) -> None:
        """Have a row read again that was read before and is not in hand any more."""
        if shard in self._known:  # else it is not ours any more, or is read from its beginning
            self._gone_back.add((shard, tenant_id))
            self.turns.add(shard, tenant_id, seq - 1)
