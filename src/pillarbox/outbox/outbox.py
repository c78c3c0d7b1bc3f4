"""The outbox by hand: add events to a session or a connection of your own."""

from collections.abc import Iterable
from typing import Final, Protocol, Unpack
from uuid import UUID

from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from pillarbox.outbox.capture import SETTINGS, SessionCapture, make_capture
from pillarbox.outbox.connection import ConnectionCapture, connection_capture
from pillarbox.outbox.new_event import EventOptions, NewEvent
from pillarbox.outbox.row import row_of
from pillarbox.outbox.settings import CaptureSettings
from pillarbox.outbox.targets import (
    Target,
    connection_of,
    hold_tenant,
    named_tenant,
    refuse_closed,
    sync_only,
    sync_side,
)
from pillarbox.outbox.write import check_given_ids
from pillarbox.tenancy import DEFAULT_TENANT

_ADD: Final = "outbox.add(…)"


class Outbox(Protocol):
    """Record events in the running transaction.

    Safe to repeat with the same `event_id` and content. Nothing is sent; nothing survives a
    rollback; after the commit the event is delivered at least once.
    """

    async def add(self, event: object = None, **options: Unpack[EventOptions]) -> UUID:
        """Record one event and return its id."""
        ...

    async def add_many(self, events: Iterable[object]) -> list[UUID]:
        """Record many events in their order and return their ids."""
        ...


class _Recorder:
    """Check events and buffer them on a session's or a connection's capture."""

    def __init__(
        self,
        target: Target,
        tenant_id: str,
        service: str | None,
        settings: CaptureSettings | None,
    ) -> None:
        known = target.info.get(SETTINGS) if isinstance(target, Session) else None
        self._settings = CaptureSettings.chosen(settings or known, service)
        self._tenant_id = tenant_id
        self._target = target

    def record(self, events: Iterable[NewEvent]) -> list[UUID]:
        """Check all events, then buffer them: one that is refused leaves nothing behind."""
        named = named_tenant(self._target, self._tenant_id)
        tenant_id = self._settings.tenancy.resolve(named, _ADD)
        rows = [row_of(new, self._settings, tenant_id) for new in events]
        explicit = self._tenant_id != DEFAULT_TENANT
        hold_tenant(self._target, tenant_id, self._settings, named=explicit, what=_ADD)
        if any(row.given_id for row in rows):
            check_given_ids(connection_of(self._target), rows, schema=self._settings.schema)
        self._capture().add(rows)
        return [row.id for row in rows]

    def write(self) -> None:
        """Write what waits, within the transaction."""
        self._capture().write_early()

    def _capture(self) -> SessionCapture | ConnectionCapture:
        if isinstance(self._target, Session):
            if not self._target.in_transaction():
                self._target.begin()  # so that a rollback or a close forgets what was added
            return make_capture(self._target, self._settings)
        refuse_closed(self._target)
        return connection_capture(self._target, self._settings)


def _as_new(item: object) -> NewEvent:
    return item if isinstance(item, NewEvent) else NewEvent(event=item)


class SqlAlchemyOutbox:
    """Add events to an `AsyncSession` or `AsyncConnection`; they commit with its transaction.

        outbox = SqlAlchemyOutbox(session)
        await outbox.add(topic="order.created", payload={"order_id": "123", "total": 99.99})
        await session.commit()

    Without `key` and `aggregate_id` an event is unordered. Rows are checked at once and written
    just before the commit, in one statement with all others of the transaction.
    """

    def __init__(
        self,
        session: AsyncSession | AsyncConnection,
        tenant_id: str = DEFAULT_TENANT,
        *,
        service: str | None = None,
        settings: CaptureSettings | None = None,
    ) -> None:
        self._session = session
        self._recorder = _Recorder(sync_side(session), tenant_id, service, settings)

    async def add(self, event: object = None, **options: Unpack[EventOptions]) -> UUID:
        """Record one event: an event object, or a topic and a payload. Return its id."""
        return (await self._record([NewEvent(event=event, **options)]))[0]

    async def add_many(self, events: Iterable[object]) -> list[UUID]:
        """Record many events, given as event objects or as `NewEvent` values, in their order."""
        return await self._record([_as_new(item) for item in events])

    async def _record(self, events: list[NewEvent]) -> list[UUID]:
        given = any(new.event_id is not None for new in events)
        if isinstance(self._session, AsyncSession) and not given:
            return self._recorder.record(events)
        # Beginning a connection's transaction and looking at given ids may ask the database.
        return await self._session.run_sync(lambda _: self._recorder.record(events))

    async def flush(self) -> None:
        """Write what waits now, inside the open transaction, so that queries in it see the rows."""
        await self._session.run_sync(lambda _: self._recorder.write())


class SyncSqlAlchemyOutbox:
    """The same for a sync `Session` or `Connection`."""

    def __init__(
        self,
        session: Session | Connection,
        tenant_id: str = DEFAULT_TENANT,
        *,
        service: str | None = None,
        settings: CaptureSettings | None = None,
    ) -> None:
        self._recorder = _Recorder(
            sync_only(session, "SqlAlchemyOutbox"), tenant_id, service, settings
        )

    def add(self, event: object = None, **options: Unpack[EventOptions]) -> UUID:
        """Record one event: an event object, or a topic and a payload. Return its id."""
        return self._recorder.record([NewEvent(event=event, **options)])[0]

    def add_many(self, events: Iterable[object]) -> list[UUID]:
        """Record many events, given as event objects or as `NewEvent` values, in their order."""
        return self._recorder.record([_as_new(item) for item in events])

    def flush(self) -> None:
        """Write what waits now, inside the open transaction."""
        self._recorder.write()
