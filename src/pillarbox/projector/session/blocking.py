"""Blocked keys: block them, set their events aside, let them go on."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    Table,
    Text,
    and_,
    delete,
    exists,
    select,
    tuple_,
    update,
)

from pillarbox.outbox.release import CHUNK, chunk_for, troubled
from pillarbox.projector.session.tables import Tables, is_among, listed, unsettled, upsert
from pillarbox.projector.store import Lane, OutboxEvent
from pillarbox.schema.types import TransactionId


class Blocking:
    """Write the table of blocked keys, and the rows behind them."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def lock(self, connection: Connection, events: Iterable[OutboxEvent]) -> None:
        """Lock what blocks the keys of these events, in one order: operators lock it, too."""
        if lanes := {key_of(event) for event in events}:
            connection.execute(self._blocked(connection, lanes).with_for_update()).all()

    def block(
        self, connection: Connection, event: OutboxEvent, seq: int, topic: str | None, now: datetime
    ) -> None:
        """Block a key behind an event, or until a topic can be had."""
        blocker = UUID(event.event_id)
        state = {"event_id": blocker, "seq": seq, "topic": topic, "blocked_at": now}
        place = dict(zip(("tenant_id", "key"), key_of(event), strict=True))
        connection.execute(
            upsert(connection, self._tables.blocked)
            .values(**place, **state)
            .on_conflict_do_update(
                index_elements=list(place), set_=state, where=~self._needed_by_another(event)
            )
        )

    def _needed_by_another(self, event: OutboxEvent) -> ColumnElement[bool]:
        """Hold if another event blocks the key: one that was retried does not hide it."""
        outbox, blocked = self._tables.outbox, self._tables.blocked
        return exists().where(
            # An upsert has no row to correlate with: without this, any key would do.
            _of_lane(blocked, key_of(event)),
            outbox.c.tenant_id == blocked.c.tenant_id,
            outbox.c.id == blocked.c.event_id,
            outbox.c.id != UUID(event.event_id),
            troubled(outbox),
        )

    def set_aside(self, connection: Connection, events: Sequence[OutboxEvent]) -> frozenset[int]:
        """Take rows of blocked keys out of the claim index; return the numbers of those that were."""
        if not events:
            return frozenset()
        limits = self._limits(connection, {key_of(event) for event in events})
        behind = [event for event in events if event.seq > limits.get(key_of(event), event.seq)]
        outbox = self._tables.outbox
        written = connection.execute(
            update(outbox)
            .where(is_among(connection, outbox, behind), unsettled(outbox))
            .where(outbox.c.set_aside.is_(None))
            .values(set_aside="key", status="NEW")
            .returning(outbox.c.seq)
        )
        return frozenset(written.scalars())

    def release_behind(self, connection: Connection, events: Iterable[OutboxEvent]) -> None:
        """Let the keys go on that these events block; another event may block one by now."""
        blocking = {key_of(event): UUID(event.event_id) for event in events}
        locked = self._blocked(connection, blocking).with_for_update()
        self._release(
            connection,
            [
                (row.tenant_id, row.key)
                for row in connection.execute(locked).all()
                if row.event_id == blocking[row.tenant_id, row.key]
            ],
        )

    def release_topic(
        self, connection: Connection, topic: str, keys: int, apart: Mapping[str, int], chunk: int
    ) -> int:
        """Let keys go on that wait for a topic, of some tenants not more than told; return how many."""
        tenant = self._tables.blocked.c.tenant_id
        found = self._waiting(connection, topic, tenant.not_in(apart), keys)
        for tenant_id, room in apart.items():
            found += self._waiting(connection, topic, tenant == tenant_id, min(room, keys))
        lanes = [(row.tenant_id, row.key) for row in sorted(found, key=_blocked_since)[:keys]]
        self._release(connection, lanes, chunk)
        return len(lanes)

    def _waiting(
        self, connection: Connection, topic: str, whose: ColumnElement[bool], most: int
    ) -> list[Row[Any]]:
        """Lock keys that wait for a topic, passing over those that another holds."""
        blocked = self._tables.blocked.c
        query = (
            select(blocked.tenant_id, blocked.key, blocked.blocked_at)
            .where(blocked.topic == topic, whose)
            .order_by(blocked.blocked_at)
            .limit(most)
            .with_for_update(skip_locked=True)
        )
        return list(connection.execute(query)) if most else []

    def _limits(self, connection: Connection, lanes: Collection[Lane]) -> dict[Lane, int]:
        """Return up to which number events of blocked keys may pass; a release waits from now on."""
        held = self._blocked(connection, lanes).with_for_update(read=True, key_share=True)
        return {(row.tenant_id, row.key): row.seq for row in connection.execute(held)}

    def _blocked(self, connection: Connection, lanes: Collection[Lane]) -> Select[Any]:
        """Choose the blocked keys among these, in one order, so that no two wait for each other."""
        blocked = self._tables.blocked.c
        wanted = listed(
            connection,
            [{"tenant_id": tenant_id, "key": key} for tenant_id, key in lanes],
            tenant_id=Text(),
            key=Text(),
        )
        return (
            select(blocked.tenant_id, blocked.key, blocked.seq, blocked.event_id)
            .where(
                tuple_(blocked.tenant_id, blocked.key).in_(select(wanted.c.tenant_id, wanted.c.key))
            )
            .order_by(blocked.tenant_id, blocked.key)
        )

    def _release(self, connection: Connection, lanes: Collection[Lane], most: int = CHUNK) -> None:
        """Bring back the next rows of locked keys, in order; forget keys that have none."""
        chunk = min(most, chunk_for(len(lanes)))
        for lane in lanes:
            self._release_one(connection, lane, chunk)

    def _release_one(self, connection: Connection, lane: Lane, chunk: int) -> None:
        outbox, blocked = self._tables.outbox, self._tables.blocked
        key = _of_lane(blocked, lane)
        behind = and_(_of_lane(outbox, lane), outbox.c.set_aside == "key")
        last = connection.execute(_end_of_chunk(outbox, behind, chunk)).first()
        if last is None:
            connection.execute(delete(blocked).where(key))
            return
        connection.execute(
            update(outbox)
            .where(behind, outbox.c.seq <= last.seq)
            .values(set_aside=None, txid=TransactionId())
        )
        # The key stays blocked behind the last row that comes back.
        state = {"event_id": last.id, "seq": last.seq, "topic": None}
        connection.execute(update(blocked).where(key).values(**state))


def key_of(event: OutboxEvent) -> Lane:
    """Return the key that stands in the row; without order it is not the event's lane."""
    return event.lane[0], event.envelope.key or event.event_id


def _of_lane(table: Table, lane: Lane) -> ColumnElement[bool]:
    return and_(table.c.tenant_id == lane[0], table.c.key == lane[1])


def _blocked_since(row: Row[Any]) -> datetime:
    """Give the time by which keys that wait are let go: the longest first."""
    since: datetime = row.blocked_at
    return since


def _end_of_chunk(outbox: Table, behind: ColumnElement[bool], chunk: int) -> Select[Any]:
    """Choose the last of the next rows behind a key."""
    next_rows = select(outbox.c.id, outbox.c.seq).where(behind).order_by(outbox.c.seq).limit(chunk)
    rows = next_rows.subquery()
    return select(rows.c.id, rows.c.seq).order_by(rows.c.seq.desc()).limit(1)
