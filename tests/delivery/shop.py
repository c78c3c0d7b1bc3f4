"""A service with an outbox and a projector to a bus in memory."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from sqlalchemy import text

from pillarbox import MemoryMessageBus, MessageEnvelope, OutboxProjector, OutboxProjectorConfig
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
    "outbox_blocked_key", "outbox_control", "outbox_audit",
)  # fmt: skip


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

    async def sent(self, ids: list[str], limit: float = 10.0) -> None:
        """Wait until these events are SENT."""
        await self.status(ids, "SENT", limit)

    async def status(self, ids: list[str], status: str, limit: float = 10.0) -> None:
        async def reached() -> bool:
            found = {str(event.id): event.status for event in await self.database.events()}
            return all(found.get(event_id) == status for event_id in ids)

        await until(reached, f"{len(ids)} events {status}", limit)

    async def run(self, statement: str) -> None:
        async with self.database.engine.begin() as connection:
            await connection.execute(text(statement))

    def delivered(self) -> list[str]:
        return [message.event_id for message in self.bus.messages]

    async def attempts(self) -> dict[str, int]:
        return {str(event.id): event.retry_count for event in await self.database.events()}

    def refuse(self, ids: list[str], outcome: PublishOutcome, **options: Any) -> None:
        self.bus.fail_with(set(ids), outcome, **options)

    def fail_topic(self, topic: str, outcome: PublishOutcome) -> Callable[[], None]:
        def concerns(message: MessageEnvelope) -> bool:
            return message.topic == topic

        self.bus.fail_with(concerns, outcome)
        return self.bus.recover
