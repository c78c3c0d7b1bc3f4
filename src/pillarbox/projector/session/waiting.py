"""What waits: events that are due later, topics that keys wait for, what operators ask for."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Text,
    literal_column,
    or_,
    select,
    tuple_,
    update,
)

from pillarbox.projector.session.tables import Tables, listed
from pillarbox.projector.session.transactions import time_of
from pillarbox.projector.store import Control, Promoted
from pillarbox.schema.types import EventIdType, TransactionId

_DUE_AT_ONCE: Final = 1_000


@dataclass(frozen=True, slots=True)
class Waiting:
    """Bring back what is due, and tell what waits."""

    tables: Tables

    def promote(self, connection: Connection, shards: Sequence[int]) -> Promoted:
        """Make claimable what has become due, and tell when the next event does."""
        now, outbox = time_of(connection), self.tables.outbox.c
        failed = outbox.status == literal_column("'FAILED'")
        later = outbox.set_aside == literal_column("'later'")
        events = 0
        for waits, at in ((failed, outbox.retry_after), (later, outbox.deliver_at)):
            events += self._bring_back(connection, shards, waits, at, now)
        times = [
            time
            for waits, at in ((failed, outbox.retry_after), (later, outbox.deliver_at))
            if (time := _next_time(connection, waits, at, now)) is not None
        ]
        return Promoted(events, min(times) - now if times else None)

    def topics(self, connection: Connection) -> Sequence[str]:
        """Name the topics that keys wait for."""
        topic = self.tables.blocked.c.topic
        query = select(topic).where(topic.is_not(None)).distinct().order_by(topic)
        return connection.execute(query).scalars().all()

    def controls(self, connection: Connection) -> Sequence[Control]:
        """Read what operators asked for."""
        control = self.tables.control.c
        rows = connection.execute(
            select(
                control.tenant_id, control.topic, control.paused, control.events_per_second
            ).where(or_(control.paused != 0, control.events_per_second.is_not(None)))
        )
        return [Control(tenant, topic, bool(paused), rate) for tenant, topic, paused, rate in rows]

    def _bring_back(
        self,
        connection: Connection,
        shards: Sequence[int],
        waits: ColumnElement[bool],
        at: ColumnElement[datetime],
        now: datetime,
    ) -> int:
        """Make rows claimable whose time has come, passing over those that another holds."""
        outbox = self.tables.outbox
        ours = listed(connection, [{"shard": shard} for shard in shards], shard=Integer())
        due = connection.execute(
            select(outbox.c.tenant_id, outbox.c.id)
            .where(waits, at <= now, self.tables.shard(outbox).in_(select(ours.c.shard)))
            .order_by(at)
            .limit(_DUE_AT_ONCE)
            .with_for_update(skip_locked=True)
        ).all()
        if not due:
            return 0
        rows = [{"tenant_id": tenant_id, "id": str(row_id)} for tenant_id, row_id in due]
        these = listed(connection, rows, tenant_id=Text(), id=EventIdType())
        connection.execute(
            update(outbox)
            .where(
                tuple_(outbox.c.tenant_id, outbox.c.id).in_(select(these.c.tenant_id, these.c.id))
            )
            .values(status="NEW", set_aside=None, txid=TransactionId())
        )
        return len(due)


def _next_time(
    connection: Connection, waits: ColumnElement[bool], at: ColumnElement[Any], now: datetime
) -> datetime | None:
    """Return the first time to come, by the index of what waits."""
    query = select(at).where(waits, at > now).order_by(at).limit(1)
    return connection.execute(query).scalar()
