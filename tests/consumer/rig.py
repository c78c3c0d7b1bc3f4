"""A consumer on a real database and the memory bus, with a ledger that shows each effect."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import BigInteger, Integer, String, func, select, text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from pillarbox.bus.memory import MemoryMessageBus
from pillarbox.bus.memory_subscription import MemorySubscription
from pillarbox.bus.subscription import SubscriptionRequest
from pillarbox.clock import SYSTEM_CLOCK, Clock
from pillarbox.consumer.config import ConsumerConfig
from pillarbox.consumer.context import Context, Task
from pillarbox.consumer.loop import ConsumerLoop
from pillarbox.consumer.observer import Observer
from pillarbox.consumer.routes import Routes
from pillarbox.consumer.verdict import Outcome
from pillarbox.event.incoming import DEFAULT_RULES, Incoming, ReadingRules
from tests.support.database import Database

CONSUMER = "payments"
TOPIC = "shop.order"
QUICK = ConsumerConfig(
    lanes=4, retry_delay=0.01, retry_delay_max=0.04, hold_limit=5.0, look_every=0.02,
    stop_timeout=5.0,
)  # fmt: skip


class Base(DeclarativeBase):
    pass


class Effect(Base):
    """What a handler did: a row for each message that took effect, numbered as it happened."""

    __tablename__ = "consumer_effect"
    number: Mapped[int] = mapped_column(
        BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True
    )
    message_id: Mapped[str] = mapped_column(String(64))
    key: Mapped[str] = mapped_column(String(64))
    n: Mapped[int]


Handler = Callable[..., Awaitable[None]]


async def record(event: dict[str, Any], ctx: Context) -> None:
    """Write down that a message was handled."""
    ctx.session.add(
        Effect(message_id=ctx.envelope.event_id, key=ctx.envelope.key or "", n=event["n"])
    )


@dataclass(slots=True)
class Counting(Observer):
    """Count outcomes, and let tests wait for them or act at a step."""

    outcomes: dict[Outcome, int] = field(default_factory=dict)
    came_back: dict[Outcome, int] = field(default_factory=dict)
    away: int = 0
    tasks: list[tuple[str, bool]] = field(default_factory=list)
    at: dict[str, Callable[[], None]] = field(default_factory=dict)

    def ended(self, outcome: Outcome, messages: int) -> None:
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + messages

    def returned(self, outcome: Outcome) -> None:
        self.came_back[outcome] = self.came_back.get(outcome, 0) + 1

    def task_ended(self, name: str, *, done: bool) -> None:
        self.tasks.append((name, done))

    def database_away(self, error: Exception) -> None:
        del error
        self.away += 1

    def beginning(self, messages: int) -> None:
        del messages
        self._act("beginning")

    def committed(self, messages: int) -> None:
        del messages
        self._act("committed")

    def acknowledged(self, messages: int) -> None:
        del messages
        self._act("acknowledged")

    def _act(self, step: str) -> None:
        if act := self.at.get(step):
            act()


@dataclass(slots=True)
class Shop:
    """A bus, a database, and consumers between them."""

    database: Database
    bus: MemoryMessageBus = field(default_factory=MemoryMessageBus)
    seen: Counting = field(default_factory=Counting)
    sent: int = 0

    async def prepare(self) -> None:
        """Make the table of effects, empty: those of a consumer are empty in every test."""
        async with self.database.engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
            await connection.execute(text("DELETE FROM consumer_effect"))

    async def clear(self) -> None:
        await self.prepare()
        async with self.database.engine.begin() as connection:
            for table in (
                "inbox", "inbox_applied", "inbox_attempt", "inbox_parked",
                "inbox_task", "consumer_tenant", "pillarbox_audit",
            ):  # fmt: skip
                await connection.execute(text(f"DELETE FROM {table}"))

    def send(self, message_id: str, key: str | None = "k", n: int = 0, **headers: str) -> None:
        self.put(message_id, f'{{"n":{n}}}'.encode(), key, **headers)

    def put(self, message_id: str, body: bytes, key: str | None = "k", **headers: str) -> None:
        told = {"event_id": message_id, "event_type": "OrderCreated", **headers}
        self.bus.put(Incoming(TOPIC, key, told, body, "application/json"))

    def subscription(self) -> MemorySubscription:
        return self.bus.subscribe(SubscriptionRequest(CONSUMER, (TOPIC,)))

    def loop(
        self,
        handler: Handler = record,
        config: ConsumerConfig = QUICK,
        *,
        tasks: dict[str, Task] | None = None,
        observer: Observer | None = None,
        subscription: MemorySubscription | None = None,
        clock: Clock = SYSTEM_CLOCK,
        now: Callable[[], float] = time.monotonic,
        sessions: async_sessionmaker[AsyncSession] | None = None,
        event_type: str = "OrderCreated",
        rules: ReadingRules = DEFAULT_RULES,
    ) -> ConsumerLoop:
        routes = Routes(rules=rules)
        routes.add(event_type, handler)
        return ConsumerLoop(
            CONSUMER,
            routes,
            subscription or self.subscription(),
            sessions or self.database.sessions,
            config,
            tasks=tasks,
            observer=observer or self.seen,
            clock=clock,
            now=now,
            chance=random.Random(7),
        )

    @asynccontextmanager
    async def running(self, loop: ConsumerLoop) -> AsyncIterator[ConsumerLoop]:
        """Run a loop beside the test, and stop it at the end."""
        async with asyncio.TaskGroup() as group:
            group.create_task(loop.run_forever())
            try:
                yield loop
            finally:
                loop.stop()

    async def effects(self, key: str | None = None) -> list[str]:
        """Return the ids of messages that took effect, in the order in which they did."""
        query = select(Effect.message_id).order_by(Effect.number)
        if key is not None:
            query = query.where(Effect.key == key)
        async with self.database.sessions() as session:
            return list(await session.scalars(query))

    async def count(self, table: str, where: str = "1 = 1") -> int:
        found: int = await self.database.scalar(f"SELECT count(*) FROM {table} WHERE {where}")
        return found

    async def effects_are(self, number: int) -> bool:
        async with self.database.sessions() as session:
            return await session.scalar(select(func.count()).select_from(Effect)) == number
