"""The inbox table as an ORM model, for reading and for plain SQLAlchemy code."""

from datetime import datetime
from typing import Any

from sqlalchemy.orm import DeclarativeBase, Mapped

from pillarbox.schema.tables import inbox, metadata


class _Records(DeclarativeBase):
    metadata = metadata


class InboxRecord(_Records):
    """One message that took effect.

        record = await session.scalar(select(InboxRecord).where(InboxRecord.source == "orders"))

    Records that an inbox returns are not attached to a session.
    """

    __table__ = inbox

    tenant_id: Mapped[str]
    consumer: Mapped[str]
    message_id: Mapped[str]
    event_type: Mapped[str]
    source: Mapped[str | None]
    processed_at: Mapped[datetime]
    payload_hash: Mapped[str | None]
    payload: Mapped[Any]
    extra_data: Mapped[Any]

    def __repr__(self) -> str:
        return f"<InboxRecord {self.message_id} {self.event_type} consumer={self.consumer!r}>"
