"""Operators' view of read models: how far each is; pause and resume, with an audit."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, RowMapping, Select, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from pillarbox.errors import ReadModelUnknown
from pillarbox.event.ids import IdMaker, id_maker
from pillarbox.measures import Sample
from pillarbox.ops.act import ActLimits, Desk, Done
from pillarbox.ops.audit import ALL, AuditEntry, checked_actor, checked_reason
from pillarbox.ops.transactions import Transactions
from pillarbox.readmodel.lag import Lag, Members, Told, age, lag_of
from pillarbox.readmodel.locks import alone
from pillarbox.readmodel.position import Position
from pillarbox.readmodel.subscription import subscriber
from pillarbox.schema.tables import in_the_log, inbox_parked, outbox, readmodel, readmodel_held
from pillarbox.schema.types import DatabaseTime

CAP: Final = 100_000


@dataclass(frozen=True, slots=True)
class ModelView:
    """One generation of a read model.

    `lag_events` counts events that are not applied, in a log up to a cap of 100,000, and `lag_seconds`
    is the age of the oldest. A model that follows a subscription is as its members told last: the count
    is None if their broker does not know it or nobody runs the model, and with nothing in hand the age
    is the time since it was last known to have everything.

    `held_keys` are keys whose event could not be applied and waits aside; they are in no lag.

    `done_to` is the number up to which the outbox's rows are of no more use to the generation, None if
    it follows a subscription. It is below `position` while a row below may still be committed, and
    while a key is held.
    """

    name: str
    generation: int
    source: str
    state: str
    paused: bool
    position: int
    target: int | None
    events: int
    held_keys: int
    lag_events: int | None
    lag_seconds: float
    started_at: datetime
    moved_at: datetime
    done_to: int | None


class _Held(NamedTuple):
    """How many keys of a generation are held, and the lowest number that one waits for."""

    keys: int = 0
    oldest: int | None = None


@dataclass(frozen=True, slots=True)
class _Change:
    name: str
    action: str
    reason: str
    paused: bool


class ReadModelOps:
    """Look at read models, pause and resume them.

        ops = ReadModelOps(engine, actor="jane@example.com")
        await ops.pause("route-plans", reason="the table is being moved")

    Every act commits together with its row in `pillarbox_audit`. A paused model stands still in all
    processes, its readers go on. It takes the rights of the projector's role.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        actor: str,
        schema: str | None = None,
        new_id: IdMaker | None = None,
    ) -> None:
        self._desk = Desk(
            Transactions(engine, schema), checked_actor(actor), ActLimits(), new_id or id_maker()
        )

    async def list(self) -> Sequence[ModelView]:
        """Return the models that have begun, with what is being built again."""
        return await self._desk.transactions.read(partial(_views, self._desk.transactions))

    async def pause(self, name: str, *, reason: str) -> Done:
        """Have a model stand still, after the batch in hand."""
        return await self._set(name, "pause", reason, paused=True)

    async def resume(self, name: str, *, reason: str) -> Done:
        """Let a model go on from where it stands."""
        return await self._set(name, "resume", reason, paused=False)

    async def gauges(self) -> tuple[Sample, ...]:
        """Return the lag of the live models under its metrics' names; for each scrape."""
        return tuple(gauges_of(await self.list()))

    async def _set(self, name: str, action: str, reason: str, *, paused: bool) -> Done:
        change = _Change(name, action, checked_reason(reason), paused)
        done = await self._desk.transactions.write(partial(_change, self._desk, change))
        self._desk.wake()
        return done


def gauges_of(views: Sequence[ModelView]) -> Iterator[Sample]:
    """Return the lag of live models."""
    live = [view for view in views if view.state == "live"]
    for view in live:
        if view.lag_events is not None:
            labels = (("model", view.name),)
            yield Sample("pillarbox_readmodel_lag_events", "gauge", view.lag_events, labels)
    for view in live:
        labels = (("model", view.name),)
        yield Sample("pillarbox_readmodel_lag_seconds", "gauge", view.lag_seconds, labels)


def _change(desk: Desk, change: _Change, connection: Connection) -> Done:
    table = desk.transactions.table(readmodel)
    if connection.dialect.name == "postgresql":
        connection.execute(alone(change.name, desk.transactions.schema))
    place = (table.c.name == change.name, table.c.state == "live")
    found = connection.execute(select(table.c.paused).where(*place).with_for_update()).one_or_none()
    if found is None:
        raise ReadModelUnknown(change.name)
    affected = int(bool(found.paused) != change.paused)
    connection.execute(update(table).where(*place).values(paused=int(change.paused)))
    audit_id = desk.new_id()
    subject = {"read_model": change.name, "paused": int(change.paused)}
    AuditEntry(ALL, audit_id, desk.actor, change.action, change.reason, subject, affected).write(
        connection, desk.schema
    )
    return Done(change.action, audit_id, affected)


def _views(at: Transactions, connection: Connection) -> Sequence[ModelView]:
    table, held = at.table(readmodel), at.table(readmodel_held)
    query = select(table).order_by(table.c.name, table.c.generation)
    counts = select(held.c.name, held.c.generation, func.count(), func.min(held.c.seq))
    counts = counts.group_by(held.c.name, held.c.generation)
    aside = {(row[0], row[1]): _Held(row[2], row[3]) for row in connection.execute(counts)}
    return [
        _view(at, connection, row, aside.get((row["name"], row["generation"]), _Held()))
        for row in connection.execute(query).mappings().all()
    ]


def _view(at: Transactions, connection: Connection, row: RowMapping, held: _Held) -> ModelView:
    keys, done_to = held.keys, None
    if row["source"] == "log":
        lag = _log_lag(at, connection, row)
        done_to = done_up_to(Position.of(row["position"], row["gaps"]), held.oldest)
    else:
        lag = _told_lag(at, connection, row)
        keys = _keys_aside(at, connection, subscriber(row["name"], row["generation"]))
    return ModelView(
        name=row["name"],
        generation=row["generation"],
        source=row["source"],
        state=row["state"],
        paused=bool(row["paused"]),
        position=row["position"],
        target=row["target"],
        events=row["events"],
        held_keys=keys,
        lag_events=lag.events,
        lag_seconds=lag.seconds,
        started_at=row["started_at"],
        moved_at=row["moved_at"],
        done_to=done_to,
    )


def done_up_to(position: Position, held: int | None) -> int:
    """Return the number up to which nothing is left to read; `held` is the oldest that waits aside."""
    waited_for = [gap.low for gap in position.gaps] + ([] if held is None else [held])
    return min([position.number, *(number - 1 for number in waited_for)])


def _told_lag(at: Transactions, connection: Connection, row: RowMapping) -> Lag:
    query = Members(at.schema).select((row["name"], row["generation"]))
    told = [Told.of(found) for found in connection.execute(query).mappings()]
    # Asked afterwards: what was told is never of a later time.
    now = connection.execute(select(DatabaseTime())).scalar_one()
    return lag_of(told, now, row["started_at"])


def _keys_aside(at: Transactions, connection: Connection, consumer: str) -> int:
    table = at.table(inbox_parked)
    keys = select(table.c.tenant_id, table.c.key).distinct()
    keys = keys.where(table.c.consumer == consumer, table.c.key.is_not(None))
    return connection.scalar(select(func.count()).select_from(keys.subquery())) or 0


def _log_lag(at: Transactions, connection: Connection, row: RowMapping) -> Lag:
    position = Position.of(row["position"], row["gaps"])
    waiting = unapplied(at, position).limit(CAP).subquery()
    oldest = select(func.min(waiting.c.created_at)).scalar_subquery()
    query = select(func.count(), oldest, DatabaseTime()).select_from(waiting)
    found = connection.execute(query).one()
    return Lag(found[0], 0.0 if found[1] is None else age(found[1], found[2]))


def unapplied(at: Transactions, position: Position) -> Select[Any]:
    """Return the rows of the log that a position does not cover."""
    table = at.table(outbox)
    columns = table.c
    late = [columns.seq.between(gap.low, gap.high) for gap in position.gaps]
    return (
        select(columns.seq, columns.created_at)
        .where(in_the_log(table), or_(columns.seq > position.number, *late))
        .order_by(columns.seq)
    )
