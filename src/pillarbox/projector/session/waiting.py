"""What waits: events that are due later, topics that keys wait for, what operators ask for."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Text,
    and_,
    literal_column,
    or_,
    select,
    tuple_,
    update,
)

from pillarbox.projector.session.tables import Tables, listed
from pillarbox.projector.session.transactions import time_of
from pillarbox.projector.store import DUE_AT_ONCE, DUE_WINDOW, Control, Promoted
from pillarbox.schema.types import EventIdType, TransactionId


class Due(NamedTuple):
    """An event whose time has come."""

    tenant_id: str
    event_id: UUID
    at: datetime


@dataclass(frozen=True, slots=True)
class Waiting:
    """Bring back what is due, and tell what waits."""

    tables: Tables

    def promote(self, connection: Connection, shards: Sequence[int]) -> Promoted:
        """Make claimable what has become due, and tell when the next event does."""
        now, outbox = time_of(connection), self.tables.outbox.c
        kinds = (
            (outbox.status == literal_column("'FAILED'"), outbox.retry_after),
            (outbox.set_aside == literal_column("'later'"), outbox.deliver_at),
        )
        due = [row for kind in kinds for row in self._due(connection, shards, *kind, now)]
        ranked = in_turns(due, DUE_WINDOW)
        chosen, others = ranked[:DUE_AT_ONCE], ranked[DUE_AT_ONCE:]
        still_due = or_(*(and_(waits, at <= now) for waits, at in kinds))
        events = self._bring_back(connection, chosen, still_due) if chosen else 0
        if others and events < len(chosen):
            # Another transaction holds some of them; those behind them need not wait for it.
            events += self._bring_back(connection, others, still_due)
        times = [
            time
            for waits, at in kinds
            if (time := _next_time(connection, waits, at, now)) is not None
        ]
        more = len(chosen) == DUE_AT_ONCE and events > 0
        return Promoted(events, min(times) - now if times else None, more=more)

    def topics(self, connection: Connection) -> Sequence[str]:
        """Name the topics that keys wait for."""
        topic = self.tables.blocked.c.topic
        query = select(topic).where(topic.is_not(None)).distinct().order_by(topic)
        return connection.execute(query).scalars().all()

    def log_readers(self, connection: Connection) -> Sequence[str]:
        """Name the read models that follow the outbox's log."""
        models = self.tables.readmodel.c
        query = select(models.name).where(models.source == "log").order_by(models.name).distinct()
        return list(connection.scalars(query))

    def controls(self, connection: Connection) -> Sequence[Control]:
        """Read what operators asked for."""
        control = self.tables.control.c
        rows = connection.execute(
            select(
                control.tenant_id, control.topic, control.paused, control.events_per_second
            ).where(or_(control.paused != 0, control.events_per_second.is_not(None)))
        )
        return [Control(tenant, topic, bool(paused), rate) for tenant, topic, paused, rate in rows]

    def _due(
        self,
        connection: Connection,
        shards: Sequence[int],
        waits: ColumnElement[bool],
        at: ColumnElement[datetime],
        now: datetime,
    ) -> Iterable[Due]:
        """Read what is due: all, or what is so for longest and what has become so just now."""
        outbox = self.tables.outbox
        ours = listed(connection, [{"shard": shard} for shard in shards], shard=Integer())
        query = (
            select(outbox.c.tenant_id, outbox.c.id, at)
            .where(waits, at <= now, self.tables.shard(outbox).in_(select(ours.c.shard)))
            .limit(DUE_WINDOW)
        )
        found = [Due(*row) for row in connection.execute(query.order_by(at))]
        if len(found) == DUE_WINDOW:
            found += [Due(*row) for row in connection.execute(query.order_by(at.desc()))]
        return dict.fromkeys(found)

    def _bring_back(
        self, connection: Connection, chosen: Sequence[Due], still_due: ColumnElement[bool]
    ) -> int:
        """Make rows claimable that are due yet, passing over those that another holds."""
        outbox = self.tables.outbox
        rows = [{"tenant_id": due.tenant_id, "id": str(due.event_id)} for due in chosen]
        these = listed(connection, rows, tenant_id=Text(), id=EventIdType())
        among = tuple_(outbox.c.tenant_id, outbox.c.id).in_(select(these.c.tenant_id, these.c.id))
        free = (
            select(outbox.c.tenant_id, outbox.c.id)
            .where(among, still_due)
            .with_for_update(skip_locked=True)
            .cte("free")
        )
        back = connection.execute(
            update(outbox)
            .where(tuple_(outbox.c.tenant_id, outbox.c.id).in_(select(free)))
            .values(status="NEW", set_aside=None, txid=TransactionId())
            .returning(outbox.c.seq)
        )
        return len(back.all())


def in_turns(due: Iterable[Due], most: int) -> list[Due]:
    """Choose events of each tenant in turn, of each those that are due for longest."""
    turns: Counter[str] = Counter()
    ranked = []
    for one in sorted(due, key=lambda one: one.at):
        ranked.append((turns[one.tenant_id], one))
        turns[one.tenant_id] += 1
    ranked.sort(key=lambda pair: pair[0])  # within a turn by time, as they are
    return [one for _, one in ranked[:most]]


def _next_time(
    connection: Connection, waits: ColumnElement[bool], at: ColumnElement[Any], now: datetime
) -> datetime | None:
    """Return the first time to come, by the index of what waits."""
    query = select(at).where(waits, at > now).order_by(at).limit(1)
    return connection.execute(query).scalar()
