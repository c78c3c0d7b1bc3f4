"""The inbox by hand: take each message once, in a session or a connection of your own."""

from collections.abc import Iterable
from typing import Any, Protocol

from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from pillarbox.inbox.message import InboxMessage
from pillarbox.inbox.record import InboxRecord
from pillarbox.inbox.register import Register
from pillarbox.outbox.new_event import Key
from pillarbox.outbox.settings import CaptureSettings
from pillarbox.outbox.targets import sync_only, sync_side
from pillarbox.tenancy import DEFAULT_TENANT


class Inbox(Protocol):
    """Let a message take effect once, in the running transaction.

    The record and the effect commit together or not at all. A message that another transaction is
    handling is waited for: until that one commits, nobody knows whether it took effect.
    """

    async def is_processed(self, message_id: Key, *, payload: Any = None) -> bool:
        """Say whether a message took effect before."""
        ...

    async def mark_processed(
        self,
        message_id: Key,
        event_type: str,
        payload: Any = None,
        source: str | None = None,
        extra_data: Any = None,
    ) -> InboxRecord:
        """Record a message after its effect; raise `DuplicateMessage` if it had one before."""
        ...

    async def claim(
        self,
        message_id: Key,
        *,
        event_type: str,
        payload: Any = None,
        source: str | None = None,
        extra_data: Any = None,
    ) -> bool:
        """Record a message before its effect; False means that it had one before."""
        ...

    async def get_record(self, message_id: Key) -> InboxRecord | None:
        """Return what is recorded of a message."""
        ...

    async def cleanup_old_records(self, older_than_days: float = 30) -> int:
        """Forget messages that cannot come again, and return how many."""
        ...


class SqlAlchemyInbox:
    """Take messages once, on an `AsyncSession` or `AsyncConnection`.

        inbox = SqlAlchemyInbox(session, consumer="payments")
        if await inbox.claim(event_id, event_type="OrderCreated", payload=payload):
            await handle(payload)
        await session.commit()

    `consumer` is the stable name of the handler: each takes the same message once. With
    `keep_payload` the content is stored besides its hash. The same id with other content raises
    `ContentMismatch`, so that it never takes effect in silence.
    """

    def __init__(
        self,
        session: AsyncSession | AsyncConnection,
        tenant_id: str = DEFAULT_TENANT,
        *,
        consumer: str = "default",
        keep_payload: bool = False,
        settings: CaptureSettings | None = None,
    ) -> None:
        self._session = session
        self._register = Register(
            sync_side(session), tenant_id, consumer, settings, keep_payload=keep_payload
        )

    async def is_processed(self, message_id: Key, *, payload: Any = None) -> bool:
        """Say whether a message took effect before; with a payload, whether it was this one."""
        return await self._session.run_sync(
            lambda _: self._register.is_processed(message_id, payload)
        )

    async def mark_processed(
        self,
        message_id: Key,
        event_type: str,
        payload: Any = None,
        source: str | None = None,
        extra_data: Any = None,
    ) -> InboxRecord:
        """Record a message after its effect, in the same transaction.

        Raise `DuplicateMessage` when it is recorded already, also by a transaction that committed
        since it was asked for: roll back then, because the effect would be there twice.
        """
        message = InboxMessage(
            message_id=message_id,
            event_type=event_type,
            payload=payload,
            source=source,
            extra_data=extra_data,
        )
        return await self._session.run_sync(lambda _: self._register.mark(message))

    async def claim(
        self,
        message_id: Key,
        *,
        event_type: str,
        payload: Any = None,
        source: str | None = None,
        extra_data: Any = None,
    ) -> bool:
        """Record a message before its effect, in the same transaction; False is a duplicate.

        While another transaction handles the message, this waits for its end: it returns False
        after a commit and True after a rollback.
        """
        message = InboxMessage(
            message_id=message_id,
            event_type=event_type,
            payload=payload,
            source=source,
            extra_data=extra_data,
        )
        return await self._session.run_sync(lambda _: self._register.claim(message))

    async def claim_many(self, messages: Iterable[InboxMessage]) -> set[Key]:
        """Claim a batch with one statement, and return the ids that are new.

        An id that comes twice in a batch is new once: handle the first of its messages. After a
        `ContentMismatch` roll back, and claim one by one to find out which are good.
        """
        return await self._session.run_sync(lambda _: self._register.claim_many(messages))

    async def get_record(self, message_id: Key) -> InboxRecord | None:
        """Return what is recorded of a message of this tenant and consumer."""
        return await self._session.run_sync(lambda _: self._register.find(message_id))

    async def cleanup_old_records(self, older_than_days: float = 30) -> int:
        """Forget messages of this tenant and consumer that were taken longer ago; say how many.

        Rows go in batches of 1,000. Without a running transaction each batch is committed by
        itself, so that no lock is held for long; inside one, all wait for your commit.
        """
        return await self._session.run_sync(lambda _: self._register.clean_up(older_than_days))


class SyncSqlAlchemyInbox:
    """The same for a sync `Session` or `Connection`."""

    def __init__(
        self,
        session: Session | Connection,
        tenant_id: str = DEFAULT_TENANT,
        *,
        consumer: str = "default",
        keep_payload: bool = False,
        settings: CaptureSettings | None = None,
    ) -> None:
        target = sync_only(session, "SqlAlchemyInbox")
        self._register = Register(target, tenant_id, consumer, settings, keep_payload=keep_payload)

    def is_processed(self, message_id: Key, *, payload: Any = None) -> bool:
        """Say whether a message took effect before; with a payload, whether it was this one."""
        return self._register.is_processed(message_id, payload)

    def mark_processed(
        self,
        message_id: Key,
        event_type: str,
        payload: Any = None,
        source: str | None = None,
        extra_data: Any = None,
    ) -> InboxRecord:
        """Record a message after its effect; raise `DuplicateMessage` if it had one before."""
        message = InboxMessage(
            message_id=message_id,
            event_type=event_type,
            payload=payload,
            source=source,
            extra_data=extra_data,
        )
        return self._register.mark(message)

    def claim(
        self,
        message_id: Key,
        *,
        event_type: str,
        payload: Any = None,
        source: str | None = None,
        extra_data: Any = None,
    ) -> bool:
        """Record a message before its effect; False means that it had one before."""
        message = InboxMessage(
            message_id=message_id,
            event_type=event_type,
            payload=payload,
            source=source,
            extra_data=extra_data,
        )
        return self._register.claim(message)

    def claim_many(self, messages: Iterable[InboxMessage]) -> set[Key]:
        """Claim a batch with one statement, and return the ids that are new."""
        return self._register.claim_many(messages)

    def get_record(self, message_id: Key) -> InboxRecord | None:
        """Return what is recorded of a message of this tenant and consumer."""
        return self._register.find(message_id)

    def cleanup_old_records(self, older_than_days: float = 30) -> int:
        """Forget messages of this tenant and consumer that were taken longer ago; say how many."""
        return self._register.clean_up(older_than_days)
