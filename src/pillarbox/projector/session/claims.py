"""Claim events: read what is claimable, a turn for each tenant, and record the claim.

Nothing is remembered of the backlog, so there is nothing to miss: each claim looks at the index
anew, past the events in hand.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    FromClause,
    Integer,
    LargeBinary,
    Row,
    Select,
    Text,
    and_,
    cast,
    func,
    insert,
    literal_column,
    select,
    true,
    update,
)

from pillarbox.projector.config import OutboxProjectorConfig
from pillarbox.projector.postgres.rows import event_of
from pillarbox.projector.scope import Scope
from pillarbox.projector.session.fence import Fence
from pillarbox.projector.session.tables import Tables, claimable, is_among, listed
from pillarbox.projector.session.transactions import time_of
from pillarbox.projector.store import Claimed, ClaimRequest, OutboxEvent
from pillarbox.projector.turns import Pair, Turns

_NOT_HELD: Final = Claimed((), more=False, held=False)
_NOTHING: Final = Claimed((), more=False)


class _Plan(NamedTuple):
    pairs: Sequence[Pair]
    quota: int
    all_of_them: bool


class Claims:
    """Know whose turn it is and what was read; everything else stands in the tables."""

    def __init__(
        self,
        tables: Tables,
        fence: Fence,
        *,
        scope: Scope,
        source: str,
        config: OutboxProjectorConfig,
    ) -> None:
        self._tables, self._fence, self._scope = tables, fence, scope
        self._source, self._config = source, config
        self._turns, self._waiting = Turns(), set[tuple[int, str]]()
        self._read: list[int] = []
        self._known: set[int] = set()

    def claim(self, connection: Connection, request: ClaimRequest) -> Claimed:
        """Claim the next events of these shards."""
        if self._fence.lost(connection, request.epochs):
            return _NOT_HELD
        if self._config.claim == "row":
            self._unmark(connection, request.epochs.keys())
        self._read = [seq for seq in self._read if seq in request.in_hand]
        plan = self._plan(self._pairs(connection, request.epochs), request)
        if not plan.pairs:
            return _NOTHING
        now = time_of(connection)
        found = connection.execute(self._rows(connection, plan)).all()
        rows = _within(found, request.quotas) if request.quotas else found
        if not rows:
            return _NOTHING
        events = [self._event(row, now) for row in rows]
        self._record(connection, request, events)
        self._read += [event.seq for event in events]
        more = not plan.all_of_them or _filled(found, plan.quota) or found[0].found > len(rows)
        return Claimed(events, more=more)

    def forget(self, shards: Iterable[int]) -> None:
        """Look after what a former owner has left when shards come back."""
        self._known -= set(shards)

    def _plan(self, pairs: Iterable[tuple[int, str]], request: ClaimRequest) -> _Plan:
        """Choose the pairs whose turn it is, and how many rows each may give."""
        waiting = {pair for pair in pairs if self._scope.serves(pair[1])}
        for pair in self._waiting - waiting:
            self._turns.exhausted(*pair)
        for shard, tenant_id in sorted(waiting - self._waiting):
            self._turns.add(shard, tenant_id, 0)
        self._waiting = waiting
        picked = self._turns.next(request.limit, request.passed_over)
        open_to_us = sum(tenant_id not in request.passed_over for _, tenant_id in waiting)
        quota = request.limit // len(picked) if picked else 0
        return _Plan(picked, quota, all_of_them=len(picked) == open_to_us)

    def _pairs(
        self, connection: Connection, epochs: Mapping[int, int]
    ) -> Sequence[tuple[int, str]]:
        """Name the pairs (shard, tenant) with unread rows: one probe of the index for each."""
        shards = listed(connection, [{"shard": shard} for shard in epochs], shard=Integer())
        first = select(shards.c.shard, self._lowest_tenant(connection, shards)).cte(
            "pair", recursive=True
        )
        following = select(first.c.shard, self._lowest_tenant(connection, first, first.c.tenant_id))
        pair = first.union_all(following.where(first.c.tenant_id.is_not(None)))
        found = connection.execute(
            select(pair.c.shard, pair.c.tenant_id).where(pair.c.tenant_id.is_not(None))
        )
        return [(shard, tenant_id) for shard, tenant_id in found]

    def _lowest_tenant(
        self, connection: Connection, of: FromClause, above: ColumnElement[str] | None = None
    ) -> ColumnElement[str]:
        outbox = self._tables.outbox.alias()
        query = select(func.min(outbox.c.tenant_id)).where(
            claimable(outbox),
            self._tables.shard(outbox) == of.c.shard,
            *self._unread(connection, outbox),
        )
        if above is not None:
            query = query.where(outbox.c.tenant_id > above)
        return query.correlate(of).scalar_subquery().label("tenant_id")

    def _unread(self, connection: Connection, outbox: FromClause) -> list[ColumnElement[bool]]:
        if not self._read:
            return []
        read = listed(connection, [{"seq": seq} for seq in self._read], seq=BigInteger())
        return [outbox.c.seq.not_in(select(read.c.seq))]

    def _rows(self, connection: Connection, plan: _Plan) -> Select[Any]:
        """Read the turns' rows as far as they fit, with what blocks their keys, by number."""
        blocked = self._tables.blocked.c
        sized = self._sized(connection, plan).cte("sized")
        key_is_blocked = (blocked.tenant_id == sized.c.tenant_id) & (blocked.key == sized.c.key)
        return (
            select(sized, blocked.seq.label("blocked_seq"), blocked.event_id.label("blocked_by"))
            .outerjoin(self._tables.blocked, key_is_blocked)
            # What stands before a row must fit; so the first one always does.
            .where(sized.c.before <= self._config.batch_bytes)
            .order_by(sized.c.seq)
        )

    def _sized(self, connection: Connection, plan: _Plan) -> Select[Any]:
        turns = listed(
            connection,
            [
                {"turn": turn, "shard": pair.shard, "tenant_id": pair.tenant_id}
                for turn, pair in enumerate(plan.pairs)
            ],
            turn=Integer(),
            shard=Integer(),
            tenant_id=Text(),
        )
        row, of_the_turn = self._row_of_turn(connection, turns, plan.quota)
        before = func.sum(_size(connection, row)).over(
            order_by=(turns.c.turn, row.c.seq), rows=(None, -1)
        )
        return select(
            *(row.c[name] for name in _AS_STORED),
            *(cast(row.c[name], Text).label(name) for name in _AS_TEXT),
            turns.c.shard,
            turns.c.turn,
            func.count().over().label("found"),
            func.coalesce(before, 0).label("before"),
        ).select_from(turns.join(row, of_the_turn))

    def _row_of_turn(
        self, connection: Connection, turns: FromClause, quota: int
    ) -> tuple[FromClause, ColumnElement[bool]]:
        """Return the rows of a turn by the claim index, and what joins them with it.

        Only PostgreSQL has LATERAL, and only SQLite looks rows up by a list that it makes for each
        turn.
        """
        outbox = self._tables.outbox.alias("o")
        postgres = connection.dialect.name == "postgresql"
        of_turn = (
            select(outbox if postgres else outbox.c.id)
            .where(claimable(outbox), self._tables.shard(outbox) == turns.c.shard)
            .where(outbox.c.tenant_id == turns.c.tenant_id, *self._unread(connection, outbox))
            .order_by(outbox.c.seq)
            .limit(quota)
            .correlate(turns)
        )
        if postgres:
            return of_turn.lateral("row"), true()
        row = self._tables.outbox.alias("row")
        return row, and_(row.c.tenant_id == turns.c.tenant_id, row.c.id.in_(of_turn))

    def _record(
        self, connection: Connection, request: ClaimRequest, events: Sequence[OutboxEvent]
    ) -> None:
        """Write the claim; the commit that follows makes durable whatever was read."""
        connection.execute(
            insert(self._tables.claim).values(
                claim_id=request.claim_id,
                member_id=self._fence.member_id,
                scope=self._fence.scope,
                shards=list(request.epochs),
                epochs=list(request.epochs.values()),
                seqs=[event.seq for event in events],
            )
        )
        if self._config.claim == "row":
            outbox = self._tables.outbox
            these = is_among(connection, outbox, events)
            connection.execute(update(outbox).where(these).values(status="PUBLISHING"))

    def _unmark(self, connection: Connection, shards: AbstractSet[int]) -> None:
        """Make NEW again what a former owner of these shards left PUBLISHING."""
        if fresh := shards - self._known:
            outbox = self._tables.outbox
            wanted = listed(connection, [{"shard": shard} for shard in fresh], shard=Integer())
            theirs = self._tables.shard(outbox).in_(select(wanted.c.shard))
            left = and_(outbox.c.status == literal_column("'PUBLISHING'"), theirs)
            if self._scope.tenants:
                left = and_(left, outbox.c.tenant_id.in_(self._scope.tenants))
            connection.execute(update(outbox).where(left).values(status="NEW"))
        self._known = set(shards)

    def _event(self, row: Row[Any], now: datetime) -> OutboxEvent:
        blocked = row.blocked_seq is not None and row.seq > row.blocked_seq
        expires = None if row.expires_at is None else (row.expires_at - now).total_seconds()
        age = (now - row.created_at).total_seconds()
        return event_of(
            (
                row.seq, row.shard, row.tenant_id, row.turn, row.key, row.topic, str(row.id),
                row.retry_count, blocked, row.blocked_by == row.id, expires, age,
                row.event_type, row.aggregate_type, row.aggregate_id, row.aggregate_version,
                row.event_number, row.routing_key, row.schema_id, row.schema_version,
                row.occurred_at, row.event_metadata.encode(), row.content_type,
                None if row.payload is None else row.payload.encode(),
                row.payload_bytes,
                False,
                row.deliver_at is not None or row.retry_after is not None,
            ),
            self._source,
            ordered=self._config.ordered,
        )  # fmt: skip


_AS_TEXT: Final = ("event_metadata", "payload")
_AS_STORED: Final = (
    "seq", "tenant_id", "key", "topic", "id", "retry_count", "expires_at", "created_at", "deliver_at",
    "retry_after", "event_type", "aggregate_type", "aggregate_id", "aggregate_version", "event_number",
    "routing_key", "schema_id", "schema_version", "occurred_at", "content_type", "payload_bytes",
)  # fmt: skip


def _size(connection: Connection, row: FromClause) -> ColumnElement[int]:
    """Return how much a row's payload weighs."""
    if connection.dialect.name == "postgresql":
        text = cast(row.c.payload, Text)
        sizes = [func.octet_length(text), func.octet_length(row.c.payload_bytes)]
    else:
        sizes = [func.length(cast(row.c.payload, LargeBinary)), func.length(row.c.payload_bytes)]
    return func.coalesce(*sizes, 0)


def _within(rows: Iterable[Row[Any]], most: Mapping[str, int]) -> list[Row[Any]]:
    """Leave out the last rows of tenants that may not give so many; they are read again."""
    given: Counter[str] = Counter()
    taken = []
    for row in rows:
        given[row.tenant_id] += 1
        if given[row.tenant_id] <= most.get(row.tenant_id, given[row.tenant_id]):
            taken.append(row)
    return taken


def _filled(rows: Sequence[Row[Any]], quota: int) -> bool:
    """Tell whether a turn gave as much as it may, so that it may have more."""
    return max(Counter(row.turn for row in rows).values()) >= quota
