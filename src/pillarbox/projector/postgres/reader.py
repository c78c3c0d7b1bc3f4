"""What has been read and what has not: the decisions of docs/decisions/0008, without a database."""

from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final, NamedTuple

from pillarbox.projector.shares import Shares
from pillarbox.projector.store import NO_LIMITS
from pillarbox.projector.turns import Pair, Turns

# With so many tenants that have a backlog their turns alone are fair; telling them all costs more.
_FEW_TENANTS: Final = 100
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
    """What the next claim reads: so many rows of the feed, and of each pair its quota."""

    since: Snapshot
    fits: int
    pairs: Sequence[Pair] = ()
    quotas: Sequence[int] = ()


class Reader:
    """Keep the snapshot up to which everything was seen, and the turns for what was not read."""

    def __init__(self) -> None:
        self.since: Snapshot | None = None
        self.turns = Turns()
        self._known: set[int] = set()
        self._shares = Shares()
        self._met: dict[int, tuple[int, str]] = {}
        self._gone_back: set[tuple[int, str]] = set()
        self._in_doubt: set[int] | None = set()

    def forget(self) -> None:
        """Begin anew: the backend is not known, nor whether a number in hand is still that event's."""
        self.since, self.turns, self._known, self._shares = None, Turns(), set(), Shares()
        self._in_doubt = None

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
            self._shares = Shares()

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

    def behind(self, passed_over: Collection[str]) -> Collection[str]:
        """Name the tenants without which only news is left; as given if they are too many."""
        waiting = set(self.turns.tenants())
        return waiting.union(passed_over) if len(waiting) <= _FEW_TENANTS else passed_over

    def plan(
        self,
        since: Snapshot,
        limit: int,
        passed_over: Container[str],
        most: Mapping[str, int] = NO_LIMITS,
    ) -> Plan:
        """Choose what the next claim reads: what is new, and mostly the backlog if there is one.

        Of the backlog of some tenants not more is read than `most` says.
        """
        self._gone_back.clear()
        pairs = self.turns.next(max(1, limit // ROWS_OF_A_TURN), passed_over)
        if not pairs:
            return Plan(since, limit)
        fits = max(limit // 8, min(1, limit - 1))  # with none, steady writers would stop it
        each = max(1, (limit - fits) // len(pairs))
        asked = within(self._shares.quotas(pairs, each), most)
        return Plan(since, fits, [pair for pair, _ in asked], [quota for _, quota in asked])

    def digest(
        self,
        plan: Plan,
        snapshot: Snapshot,
        rows: Sequence[Row],
        *,
        in_hand: AbstractSet[int],
        passed_over: Collection[str],
        most: Mapping[str, int] = NO_LIMITS,
    ) -> list[int]:
        """Note what a claim has read; return the places of the rows to take, in order for each key."""
        self.since = snapshot
        self._read_again_what_was_met(in_hand)
        self._meet_doubtful(rows, in_hand)
        if most:
            passed_over = frozenset(passed_over) | _over(plan, rows, most)
        due = [self._still_due(pair) for pair in plan.pairs]
        counts, ends = [0] * len(due), [0] * len(due)
        for row in rows:
            if turn := row[3]:
                counts[turn - 1] += 1
                ends[turn - 1] = row[0]  # a pair's rows come by number
        fresh = self._of_the_feed(rows, in_hand, passed_over)
        for pair, quota, is_due, count, end in zip(
            plan.pairs, plan.quotas, due, counts, ends, strict=True
        ):
            if is_due and count < quota:
                self.turns.exhausted(pair.shard, pair.tenant_id)
                self._shares.forget(pair)
            elif is_due:
                self.turns.advance(pair.shard, pair.tenant_id, end)
                self._shares.learn(pair, count, end)
        # What came late goes first: it is older than what its pair's turn gave.
        return [fresh[seq] for seq in sorted(fresh)] + [
            place
            for place, row in enumerate(rows)
            if row[3] and due[row[3] - 1] and row[0] not in in_hand and row[0] not in fresh
        ]

    def news(self, rows: Sequence[Row], places: Iterable[int]) -> frozenset[str]:
        """Name the tenants without a backlog to which some of the rows taken came."""
        fresh = (rows[place] for place in takewhile(lambda place: not rows[place][3], places))
        return frozenset(row[2] for row in fresh if row[2] not in self.turns)

    def _of_the_feed(
        self, rows: Sequence[Row], in_hand: Container[int], passed_over: Container[str]
    ) -> dict[int, int]:
        """Decide on the rows of the feed; return the places of those to take, by their numbers."""
        fresh = {}
        for place, row in enumerate(rows):
            if row[3]:
                break  # the feed comes first
            seq, shard, tenant_id = row[0], row[1], row[2]
            if seq in in_hand:
                self._met[seq] = shard, tenant_id
            elif self._takes(seq, shard, tenant_id, passed_over):
                fresh[seq] = place
        return fresh

    def _meet_doubtful(self, rows: Sequence[Row], in_hand: AbstractSet[int]) -> None:
        """Note rows of turns with numbers that were in hand when the backend became unknown.

        After a failover that lost its end, a number may be given to another event.
        """
        if self._in_doubt is None:
            self._in_doubt = set(in_hand)
        elif self._in_doubt:
            self._in_doubt &= in_hand
        if self._in_doubt:
            for seq, shard, tenant_id, turn, *_ in rows:
                if turn and seq in self._in_doubt:
                    self._met[seq] = shard, tenant_id

    def _still_due(self, pair: Pair) -> bool:
        """Tell whether a pair is neither lost nor to be read again from further back."""
        where = pair.shard, pair.tenant_id
        return self.turns.after(*where) == pair.after and where not in self._gone_back

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


def within(asked: Iterable[tuple[Pair, int]], most: Mapping[str, int]) -> list[tuple[Pair, int]]:
    """Cut the quotas of tenants that may not give so many rows; leave out pairs without any.

    The shards that are furthest behind come first, or some would never have a turn.
    """
    left, cut = dict(most), []
    for pair, quota in sorted(asked, key=lambda turn: turn[0].after):
        rows = min(quota, left.get(pair.tenant_id, quota))
        if rows:
            cut.append((pair, rows))
        if pair.tenant_id in left:
            left[pair.tenant_id] -= rows
    return cut


def _over(plan: Plan, rows: Iterable[Row], most: Mapping[str, int]) -> set[str]:
    """Name the tenants that have more in the feed than they may give: their turns will read it.

    Not those whose turn it is: what the feed brings of them came late, and is taken.
    """
    fed = Counter(row[2] for row in rows if not row[3] and row[2] in most)
    now_read = {pair.tenant_id for pair in plan.pairs}
    return {tenant for tenant, count in fed.items() if count > most[tenant]} - now_read
