"""Taking messages into effect once: the consumer beside check-then-act, one message at a time.

Both read the same messages from NATS JetStream through the same subscription, and both have the
same handler, which adds one row by the ORM. The reference is the textbook: for each message a
transaction in which it asks whether the message was processed, handles it, marks it as processed
and commits; then it acknowledges. Its messages are fetched in advance, like ours. The clock runs
from the first message in hand to the last acknowledgement.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import String, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from benchmarks.backlog import create_template, postgres_server
from benchmarks.measure import alternate
from benchmarks.report import Report, Row, at_least
from pillarbox.bus.nats import NatsMessageBus
from pillarbox.bus.subscription import Subscription, SubscriptionRequest
from pillarbox.consumer.config import ConsumerConfig
from pillarbox.consumer.context import Context
from pillarbox.consumer.loop import ConsumerLoop
from pillarbox.consumer.observer import Observer
from pillarbox.consumer.routes import Routes
from pillarbox.consumer.verdict import Outcome
from pillarbox.database import make_engine
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.event.ids import id_maker
from pillarbox.event.reading import read
from pillarbox.inbox.inbox import SqlAlchemyInbox
from pillarbox.servers import Nats, Postgres

ROUNDS: Final = 5
BLOCKS: Final = 1
OURS: Final = 5_000
THEIRS: Final = 500
KEYS: Final = 500
DRIVERS: Final = ("psycopg", "asyncpg")
REFERENCE: Final = "check, then act"

_new_id = id_maker()


class Base(DeclarativeBase):
    """The tables of the business."""


class Payment(Base):
    """A row for each order."""

    __tablename__ = "payment"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    order_id: Mapped[str] = mapped_column(String(64))
    cents: Mapped[int]
    note: Mapped[str]


async def pay(session: AsyncSession, order: dict[str, Any]) -> None:
    """Handle one message: the same for both sides."""
    session.add(Payment(order_id=order["order_id"], cents=order["cents"], note=order["note"]))


@dataclass(slots=True)
class Finish(Observer):
    """Stop the clock when so many messages are finished."""

    left: int
    began: float = 0.0
    ended_at: float = 0.0
    stop: Callable[[], None] = field(default=lambda: None)

    def received(self, messages: int) -> None:
        """Start the clock with the first message."""
        del messages
        self.began = self.began or time.perf_counter()

    def ended(self, outcome: Outcome, messages: int) -> None:
        """Count what is acknowledged; anything but a first effect is a fault of the benchmark."""
        assert outcome == "new", outcome
        self.left -= messages
        if not self.left:
            self.ended_at = time.perf_counter()
            self.stop()


@dataclass(slots=True)
class Side:
    """A database, a broker, and one of the two ways between them."""

    engine: AsyncEngine
    server: Nats
    name: str
    runs: int = 0

    async def ours(self, messages: int) -> Sequence[float]:
        """Run the consumer with its default settings."""
        routes = Routes()
        routes.add("OrderCreated", _handle)
        watch = Finish(messages)
        loop = ConsumerLoop(
            "payments",
            routes,
            await self._sent(messages),
            async_sessionmaker(self.engine, expire_on_commit=False),
            ConsumerConfig(),
            observer=watch,
        )
        watch.stop = loop.stop
        await loop.run_forever()
        return [(watch.ended_at - watch.began) / messages]

    async def theirs(self, messages: int) -> Sequence[float]:
        """Run the textbook's loop."""
        sessions = async_sessionmaker(self.engine, expire_on_commit=False)
        subscription = await self._sent(messages)
        await subscription.start(_nothing_revoked)
        left, began = messages, 0.0
        while left:
            for delivery in await subscription.receive(100):
                began = began or time.perf_counter()
                envelope = read(delivery.message, None)
                assert isinstance(envelope, MessageEnvelope)
                async with sessions() as session:
                    inbox = SqlAlchemyInbox(session, consumer="payments")
                    if not await inbox.is_processed(envelope.event_id):
                        await pay(session, envelope.payload)
                        await inbox.mark_processed(
                            envelope.event_id, envelope.event_type, payload=envelope.data
                        )
                    await session.commit()
                await subscription.acknowledge([delivery])
                left -= 1
        took = time.perf_counter() - began
        await subscription.close()
        return [took / messages]

    async def _sent(self, messages: int) -> Subscription:
        """Publish messages to a topic of their own; return a subscription to it."""
        self.runs += 1
        topic = f"shop.order{self.name}{self.runs}"
        bus = NatsMessageBus(self.server.url)
        await bus.start()
        await bus.publish([_message(topic, number) for number in range(messages)])
        return bus.subscribe(SubscriptionRequest(f"payments{self.name}{self.runs}", (topic,)))


async def run(report: Report, rounds: int) -> None:
    """Measure both ways, with each driver."""
    report.packages = ("psycopg", "asyncpg", "nats-py")
    with postgres_server() as postgres, Nats() as server:
        report.servers |= {"PostgreSQL": postgres.version, "NATS": server.version}
        for driver in DRIVERS:
            if report.wants(driver):
                await _measure(report, rounds, driver, postgres, server)


async def _measure(
    report: Report, rounds: int, driver: str, postgres: Postgres, server: Nats
) -> None:
    url = await asyncio.to_thread(create_template, postgres, f"inbox_{driver}")
    engine = make_engine(url.replace("postgresql:", f"postgresql+{driver}:"))
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    side = Side(engine, server, driver)
    messages = report.options.size or OURS

    async def before_round() -> None:
        async with engine.connect() as connection:
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            await connection.execute(text("TRUNCATE inbox, payment"))
            await connection.execute(text("CHECKPOINT"))

    found = await alternate(
        {
            "ours": lambda: side.ours(messages),
            REFERENCE: lambda: side.theirs(max(messages // (OURS // THEIRS), 1)),
        },
        rounds=rounds,
        blocks=BLOCKS,
        before_round=before_round,
    )
    await engine.dispose()
    rates = {name: [1 / seconds for seconds in values] for name, values in found.items()}
    measure = f"messages taken into effect once, {driver}"
    report.add(Row(measure, "messages/s", rates["ours"], REFERENCE, rates[REFERENCE], at_least(10)))


async def _handle(order: dict[str, Any], ctx: Context) -> None:
    await pay(ctx.session, order)


async def _nothing_revoked(partitions: object) -> None:
    del partitions


def _message(topic: str, number: int) -> MessageEnvelope:
    order = {"order_id": f"order-{number}", "cents": number, "note": "x" * 300}
    return MessageEnvelope(
        event_id=str(_new_id()),
        event_type="OrderCreated",
        payload=order,
        topic=topic,
        key=f"order-{number % KEYS}",
        source="shop",
    )
