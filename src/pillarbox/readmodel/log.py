"""The outbox as a log: rows in the order of their numbers, with the snapshot that saw them."""

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Row,
    Select,
    Text,
    TextualSelect,
    cast,
    column,
    func,
    select,
    text,
)
from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox.event.attributes import Flawed
from pillarbox.event.content import content_of
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.event.incoming import ReadingRules, Unreadable
from pillarbox.migrations.frozen import SqlTemplate, qualifier
from pillarbox.readmodel.position import Gap, Position, Snapshot
from pillarbox.schema.tables import in_the_log, outbox, outbox_settings, table_in

_COLUMNS: Final = (
    "seq", "tenant_id", "id", "key", "event_type", "topic", "aggregate_type", "aggregate_id",
    "aggregate_version", "event_number", "routing_key", "schema_id", "schema_version",
    "occurred_at", "event_metadata", "content_type",
)  # fmt: skip


class Entry(NamedTuple):
    """One row of the log: its number and key, and its event if the model takes its type."""

    seq: int
    tenant_id: str
    key: str
    event_id: str
    event: MessageEnvelope | Unreadable | None

    @property
    def line(self) -> tuple[str, str]:
        """What keeps its order: the tenant's key."""
        return self.tenant_id, self.key


class LogBatch(NamedTuple):
    """Rows by number, and the transactions that were open when they were read."""

    entries: Sequence[Entry] = ()
    open: tuple[int, ...] = ()
    cut: int | None = None
    """The last number in a gap, if there may be more of them; then there are none above."""

    def upto(self, seq: int, after: Position) -> "LogBatch":
        """Return it as if the rows above one of its own had not been read after a position.

        The lowest is always left: it answers a doubt about what the model had to go on with.
        """
        entries = [entry for entry in self.entries if entry.seq <= seq]
        return self._replace(entries=entries, cut=seq if seq <= after.number else None)


class Horizon(NamedTuple):
    """The highest number that is committed, and all transactions that ran right after."""

    newest: int
    running: Sequence[int]


class Beginning(NamedTuple):
    """Where a log begins: its oldest number, the last that was drawn, who might add an older one."""

    oldest: int | None
    last: int = 0
    open: tuple[int, ...] = ()

    def reaches(self, first: int) -> bool | None:
        """Tell whether the log still begins with its first row; None while nobody can know."""
        if self.oldest == first or (self.oldest is None and not self.last):
            return True
        return None if self.open else False

    def goes_on_from(self, number: int) -> bool | None:
        """Tell whether whoever has read up to a number finds the next row; None while nobody can know.

        While an older row is there, what is missing above the number cannot be told from what was
        rolled back, and is taken for that.
        """
        reached = self.last <= number if self.oldest is None else self.oldest <= number + 1
        return True if reached else None if self.open else False


class Log:
    """Read the outbox inside the transactions of a read model."""

    def __init__(
        self, types: Sequence[str], *, schema: str | None, source: str, rules: ReadingRules
    ) -> None:
        self._types, self._schema = frozenset(types), schema
        self._source, self._rules = source, rules
        self._table = table_in(outbox, schema)

    async def read(self, session: AsyncSession, after: Position, most: int) -> LogBatch:
        """Read up to `most` rows that fill gaps of a position, and as many above if those are fewer."""
        values: dict[str, Any] = {"number": after.number, "most": most}
        if session.sync_session.get_bind().dialect.name != "postgresql":
            values["types"] = json.dumps(sorted(self._types))
            found = await session.execute(_read_statement("sqlite", self._schema), values)
            return LogBatch([self._entry(row) for row in found])
        horizon = await self._horizon(session)
        if horizon.newest <= after.number and not (after.gaps or after.doubts):
            return LogBatch()
        values |= {
            # A doubted number that is committed by now is looked at too: it would pass for lost.
            "newest": max([horizon.newest, *(doubt.number for doubt in after.doubts)]),
            "types": sorted(self._types),
            "lows": [gap.low for gap in after.gaps],
            "highs": [gap.high for gap in after.gaps],
        }
        statement = _read_statement("postgresql", self._schema)
        rows = (await session.execute(statement, values)).all()
        entries = [self._entry(row) for row in rows if row.seq is not None]
        cut = after.cut([entry.seq for entry in entries], most)
        if cut is not None:
            entries = [entry for entry in entries if entry.seq <= cut]
        opened = Snapshot.parse(rows[0].snapshot).open_among(horizon.running)
        return LogBatch(entries, opened, cut)

    async def _horizon(self, session: AsyncSession) -> Horizon:
        """Look at the end of the log, then at who runs.

        Whoever has drawn a number below the newest runs by now or has ended: the snapshot of a
        later statement tells which. That statement must not read beyond the newest.
        """
        found = (await session.execute(_horizon_statement(self._schema))).one()
        return Horizon(found.newest, found.running)

    async def read_key(
        self,
        session: AsyncSession,
        line: tuple[str, str],
        low: int,
        high: int,
        most: int | None = None,
    ) -> Sequence[Entry]:
        """Read the rows of one key between two numbers, the lowest first."""
        columns = self._table.c
        query = self._rows().where(
            in_the_log(self._table),
            columns.tenant_id == line[0],
            columns.key == line[1],
            columns.seq.between(low, high),
        )
        query = query.order_by(columns.seq).limit(most)
        return [self._entry(row) for row in await session.execute(query)]

    async def beginning(self, session: AsyncSession) -> Beginning:
        """Look at where the log begins; on PostgreSQL in a transaction that reads what is committed."""
        numbers = select(func.min(self._table.c.seq)).where(in_the_log(self._table))
        if session.sync_session.get_bind().dialect.name != "postgresql":
            settings = table_in(outbox_settings, self._schema)
            query = select(numbers.scalar_subquery(), settings.c.last_seq)
            found = (await session.execute(query)).one()
            return Beginning(found[0], found[1] or 0)
        # First of all: whoever has drawn by now runs afterwards, or has ended before the snapshot.
        sequence = func.to_regclass(f"{qualifier(self._schema)}outbox_seq")
        last = await session.scalar(select(func.pg_sequence_last_value(sequence))) or 0
        running = (await self._horizon(session)).running
        # A row above may be of somebody who began since, behind one that is open and not among these.
        oldest = numbers.where(self._table.c.seq <= last).scalar_subquery()
        query = select(oldest, cast(func.pg_current_snapshot(), Text))
        found = (await session.execute(query)).one()
        return Beginning(found[0], last, Snapshot.parse(found[1]).open_among(running))

    async def newest(self, session: AsyncSession) -> int:
        """Return the highest number that is committed."""
        numbers = select(func.max(self._table.c.seq)).where(in_the_log(self._table))
        return await session.scalar(numbers) or 0

    async def here(self, session: AsyncSession) -> Position:
        """Return the position of everything that a repeatable-read transaction sees."""
        newest = await self.newest(session)
        if session.sync_session.get_bind().dialect.name != "postgresql":
            return Position(newest)
        # Our id is drawn after the snapshot, hence after those of all who have drawn a number.
        own = cast(cast(func.pg_current_xact_id(), Text), BigInteger)
        query = select(cast(func.pg_current_snapshot(), Text), own)
        snapshot, own_id = (await session.execute(query)).one()
        opened = Snapshot.parse(snapshot).open_below(own_id)
        if not opened:
            return Position(newest)
        columns = self._table.c
        before = func.lag(columns.seq, 1, 0).over(order_by=columns.seq).label("before")
        rows = select(columns.seq, before).where(in_the_log(self._table)).subquery()
        found = await session.execute(
            select(rows.c.before + 1, rows.c.seq - 1).where(rows.c.seq > rows.c.before + 1)
        )
        return Position(newest, tuple(Gap(low, high, opened) for low, high in found))

    def _rows(self) -> Select[Any]:
        columns = self._table.c
        payload = cast(columns.payload, Text).label("payload")
        return select(*(columns[name] for name in _COLUMNS), payload, columns.payload_bytes)

    def _entry(self, row: Row[Any]) -> Entry:
        event_id = str(row.id)
        wanted = row.event_type in self._types
        event = envelope_of(row, event_id, self._source, self._rules) if wanted else None
        return Entry(row.seq, row.tenant_id, row.key, event_id, event)


def envelope_of(
    row: Row[Any], event_id: str, source: str, rules: ReadingRules
) -> MessageEnvelope | Unreadable:
    """Make the envelope that a consumer of the same event would see."""
    body = row.payload_bytes if row.payload is None else row.payload.encode()
    try:
        content = content_of(body, row.content_type if body is not None else None, rules)
    except Flawed as flawed:
        return flawed.answer
    return MessageEnvelope(
        event_id=event_id,
        event_type=row.event_type,
        payload=content.payload,
        data=content.data,
        content_type=content.content_type,
        topic=row.topic,
        key=None if row.key == event_id else row.key,
        tenant_id=row.tenant_id,
        source=source,
        occurred_at=row.occurred_at,
        aggregate_type=row.aggregate_type,
        aggregate_id=row.aggregate_id,
        aggregate_version=row.aggregate_version,
        event_number=row.event_number,
        schema_id=row.schema_id,
        schema_version=row.schema_version,
        routing_key=row.routing_key,
        headers=row.event_metadata,
    )


@cache
def _read_statement(dialect: str, schema: str | None) -> TextualSelect:
    columns = [outbox.c[name] for name in _COLUMNS]
    content = column("payload", Text), outbox.c.payload_bytes
    read = _written(f"read_log_{dialect}", schema)
    return text(read).columns(column("snapshot", Text), *columns, *content)


@cache
def _horizon_statement(schema: str | None) -> TextualSelect:
    running = column("running", ARRAY(BigInteger))
    return text(_written("horizon", schema)).columns(column("newest", BigInteger), running)


def _written(name: str, schema: str | None) -> str:
    file = files("pillarbox.readmodel").joinpath(f"sql/{name}.sql")
    lines = [line for line in file.read_text("utf-8").splitlines() if not line.startswith("--")]
    return SqlTemplate("\n".join(lines)).substitute(schema=qualifier(schema))
