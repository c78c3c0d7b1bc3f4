"""The outbox table as an ORM model, for reading and for plain SQLAlchemy code."""

from datetime import datetime
from typing import Any
from uuid import UUID

import orjson
from sqlalchemy.orm import DeclarativeBase, Mapped

from pillarbox.outbox.new_event import NewEvent
from pillarbox.outbox.row import COLUMNS, row_of
from pillarbox.outbox.settings import CaptureSettings
from pillarbox.schema.tables import metadata, outbox
from pillarbox.tenancy import DEFAULT_TENANT


class _Records(DeclarativeBase):
    metadata = metadata


class OutboxRecord(_Records):
    """One event in the outbox.

        record = await session.scalar(select(OutboxRecord).where(OutboxRecord.key == "o-1"))

    `status` is the stored one; the view `outbox_live` also shows events that are being sent.
    """

    __table__ = outbox

    id: Mapped[UUID]
    tenant_id: Mapped[str]
    seq: Mapped[int]
    txid: Mapped[int | None]
    shard_hash: Mapped[int]
    event_type: Mapped[str]
    topic: Mapped[str]
    key: Mapped[str]
    aggregate_type: Mapped[str | None]
    aggregate_id: Mapped[str | None]
    aggregate_version: Mapped[int | None]
    event_number: Mapped[int | None]
    routing_key: Mapped[str | None]
    schema_id: Mapped[str | None]
    schema_version: Mapped[int]
    event_metadata: Mapped[dict[str, str]]
    content_type: Mapped[str]
    payload: Mapped[Any]
    payload_bytes: Mapped[bytes | None]
    status: Mapped[str]
    set_aside: Mapped[str | None]
    retry_count: Mapped[int]
    retry_after: Mapped[datetime | None]
    error_class: Mapped[str | None]
    error_message: Mapped[str | None]
    occurred_at: Mapped[datetime]
    created_at: Mapped[datetime]
    deliver_at: Mapped[datetime | None]
    expires_at: Mapped[datetime | None]
    published_at: Mapped[datetime | None]

    @classmethod
    def from_domain(
        cls,
        event: object,
        *,
        settings: CaptureSettings | None = None,
        tenant_id: str = DEFAULT_TENANT,
        **options: Any,
    ) -> "OutboxRecord":
        """Make a record from an event, checked as `add` checks it; not attached to a session.

        Outboxes and units of work write rows themselves, in order; this is for looking at one.
        """
        settings = settings or CaptureSettings.from_env()
        row = row_of(NewEvent(event=event, **options), settings, tenant_id)
        values = dict(zip(COLUMNS, row, strict=False))
        values["event_metadata"] = orjson.loads(row.event_metadata)
        values["payload"] = None if row.payload is None else orjson.loads(row.payload)
        return cls(**values, status="NEW", retry_count=0)

    def __repr__(self) -> str:
        return f"<OutboxRecord {self.id} {self.event_type} {self.status} key={self.key!r}>"
