"""A service with an outbox and a projector to a bus in memory."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Row, bindparam, func, select, text, update

from pillarbox import (
    MemoryMessageBus,
    MessageEnvelope,
    OutboxProjector,
    OutboxProjectorConfig,
    OutboxRecord,
)
from pillarbox.bus.message_bus import Capabilities
from pillarbox.bus.outcome import PublishOutcome
from pillarbox.event.rules import MEMORY
from pillarbox.outbox.outbox import SqlAlchemyOutbox
from tests.support.database import Database
from tests.support.waiting import until

QUICK = OutboxProjectorConfig(
    lease=12.0, retry_delay=0.01, retry_delay_max=0.05, sleep_busy=0.02, sleep_idle=0.2
)
ONE_PER_KEY = Capabilities(MEMORY, pipelines_keys=False)
TABLES = (
    "outbox", "outbox_member", "outbox_lease", "outbox_claim", "outbox_claim_end",
    "outbox_blocked_key", "outbox_control", "pillarbox_audit",
)  # fmt: skip

_STANDING = select(OutboxRecord.id, OutboxRecord.status, OutboxRecord.retry_count).order_by(
    OutboxRecord.seq
)
_UNSENT = select(func.count()).where(OutboxRecord.status != "SENT")
_RESIZE = (
    update(OutboxRecord)
    .where(OutboxRecord.id == bindparam("event_id"))
    .values(payload=bindparam("content"))
)


@dataclass
class Shop:
    database: Database
    bus: MemoryMessageBus = field(default_factory=MemoryMessageBus)
    config: OutboxProjectorConfig = QUICK

    async def add(
        self,
        *keys: str | None,
        topic: str = "orders",
        tenant: str = "default",
        deliver_at: datetime | None = None,
        expires_at: datetime | None = None,
    ) -> list[str]:
        """Commit one event for each key, each in a transaction of its own; return their ids."""
        ids = []
        for key in keys:
            async with self.database.sessions() as session:
                outbox = SqlAlchemyOutbox(session, tenant_id=tenant)
                added = await outbox.add(
                    topic=topic,
                    payload={"key": key},
                    key=key,
                    deliver_at=deliver_at,
                    expires_at=expires_at,
                )
                await session.commit()
            ids.append(str(added))
        return ids

    async def add_together(self, *keys: str, topic: str, tenant: str = "default") -> list[str]:
        """Commit one event for each key, all in one transaction; return their ids."""
        async with self.database.sessions() as session:
            outbox = SqlAlchemyOutbox(session, tenant_id=tenant)
            ids = [await outbox.add(topic=topic, payload={"key": key}, key=key) for key in keys]
            await session.commit()
        return [str(added) for added in ids]

    async def resize(self, event_id: str, size: int) -> None:
        """Change the payload of an event behind the outbox's back to about so many bytes."""
        values = {"event_id": UUID(event_id), "content": "x" * size}
        async with self.database.engine.begin() as connection:
            await connection.execute(_RESIZE, values)

    def configured(self, **changes: Any) -> "Shop":
        self.config = replace(self.config, **changes)
        return self

    def projector(self, **options: Any) -> OutboxProjector:
        options.setdefault("config", self.config)
        options.setdefault("message_bus", self.bus)
        return OutboxProjector(self.database.sessions, **options)

    @asynccontextmanager
    async def projecting(self, **options: Any) -> AsyncIterator[OutboxProjector]:
        """Run a projector beside the test, and stop it in good order."""
        projector = self.projector(**options)
        async with asyncio.TaskGroup() as group:
            group.create_task(projector.run_forever())
            try:
                yield projector
            finally:
                projector.stop()

    async def sent(self, ids: list[str], limit: float = 30.0) -> None:
        """Wait until these events are SENT."""
        await self.status(ids, "SENT", limit)

    async def drained(self, limit: float) -> None:
        """Wait until every event is SENT, however many there are."""

        async def reached() -> bool:
            async with self.database.engine.connect() as connection:
                return await connection.scalar(_UNSENT) == 0

        await until(reached, "all events are SENT", limit)

    async def status(self, ids: list[str], status: str, limit: float = 30.0) -> None:
        async def reached() -> bool:
            found = await self.standing()
            return all(found.get(event_id) == status for event_id in ids)

        await until(reached, f"{len(ids)} events {status}", limit)

    async def run(self, statement: str) -> None:
        async with self.database.engine.begin() as connection:
            await connection.execute(text(statement))

    def delivered(self) -> list[str]:
        return [message.event_id for message in self.bus.messages]

    async def attempts(self) -> dict[str, int]:
        return {str(row.id): row.retry_count for row in await self._rows()}

    async def standing(self) -> dict[str, str]:
        """Return the status of each event, the earliest first."""
        return {str(row.id): row.status for row in await self._rows()}

    async def _rows(self) -> Sequence[Row[UUID, str, int]]:
        """Read where events stand, without their payloads, of which some are large."""
        async with self.database.engine.connect() as connection:
            return (await connection.execute(_STANDING)).all()

    def refuse(self, ids: list[str], outcome: PublishOutcome, **options: Any) -> None:
        self.bus.fail_with(set(ids), outcome, **options)

    def fail_topic(self, topic: str, outcome: PublishOutcome) -> Callable[[], None]:
        def concerns(message: MessageEnvelope) -> bool:
            return message.topic == topic

        self.bus.fail_with(concerns, outcome)
        return self.bus.recover
