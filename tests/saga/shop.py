"""The short program of sagas, with participants that are ordinary consumers and know of no saga."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Row, String, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Mapped, mapped_column

from pillarbox import (
    Context,
    DomainEvent,
    MemoryMessageBus,
    MessageEnvelope,
    Pillarbox,
    Saga,
    SqlAlchemyOutbox,
    Why,
    step,
)
from pillarbox.consumer.config import ConsumerConfig
from pillarbox.consumer.consumer import Consumer
from pillarbox.saga.machine import State, Verdict
from pillarbox.saga.observer import SagaObserver
from pillarbox.schema.tables import saga, saga_step, saga_stray
from tests.support.database import Database
from tests.support.orders import Base

TABLES = ("saga", "saga_step", "saga_stray", "inbox", "inbox_attempt", "inbox_parked",
          "inbox_task", "consumer_tenant", "pillarbox_audit", "saga_shop_orders")  # fmt: skip
QUICK = ConsumerConfig(
    lanes=2, retry_delay=0.01, retry_delay_max=0.02, look_every=0.01, stop_timeout=5.0,
    max_attempts=2,
)  # fmt: skip


class OrderCreated(DomainEvent):
    aggregate_type = "order"
    order_id: str
    total: Decimal


class ReserveInventory(DomainEvent):
    aggregate_type = "inventory-command"
    order_id: str


class ReleaseInventory(DomainEvent):
    aggregate_type = "inventory-command"
    order_id: str


class Charge(DomainEvent):
    aggregate_type = "payment-command"
    order_id: str
    total: Decimal


class InventoryReserved(DomainEvent):
    aggregate_type = "inventory"
    order_id: str
    shelf: str = "A"


class InventoryReleased(DomainEvent):
    aggregate_type = "inventory"
    order_id: str


class OutOfStock(DomainEvent):
    aggregate_type = "inventory"
    order_id: str


class PaymentProcessed(DomainEvent):
    aggregate_type = "payment"
    order_id: str


class PaymentRefused(DomainEvent):
    aggregate_type = "payment"
    order_id: str


class OrderRow(Base):
    __tablename__ = "saga_shop_orders"
    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    status: Mapped[str]


async def set_status(session: AsyncSession, order_id: str, status: str) -> None:
    await session.execute(update(OrderRow).where(OrderRow.id == order_id).values(status=status))


def place_order(box: Pillarbox, observer: SagaObserver | None = None) -> type[Saga]:
    """The program of the requirements; the guide has it as it is written there."""

    class PlaceOrder(Saga, name="place-order", version=1, starts_on=OrderCreated):
        reserve = step(
            send=lambda o: ReserveInventory(o.order_id),
            ok=InventoryReserved,
            fail=OutOfStock,
            undo=lambda o: ReleaseInventory(o.order_id),
            timeout=timedelta(minutes=5),
        )
        charge = step(
            send=lambda o: Charge(o.order_id, o.total), ok=PaymentProcessed, fail=PaymentRefused
        )

        async def completed(self, start: OrderCreated, ctx: Context) -> None:
            await set_status(ctx.session, start.order_id, "CONFIRMED")

        async def compensated(self, start: OrderCreated, ctx: Context, why: Why) -> None:
            del why
            await set_status(ctx.session, start.order_id, "REJECTED")

    return box.saga(PlaceOrder, config=QUICK, observer=observer)


@dataclass(slots=True)
class Heard(SagaObserver):
    """What sagas told."""

    starts: int = 0
    again: int = 0
    stands: list[State] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    strangers: int = 0
    batches: list[int] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)

    def started(self, saga: str) -> None:
        del saga
        self.starts += 1

    def repeated_start(self, saga: str) -> None:
        del saga
        self.again += 1

    def stood(self, saga: str, state: State) -> None:
        del saga
        self.stands.append(state)

    def replied(self, saga: str, verdict: Verdict) -> None:
        del saga
        self.verdicts.append(verdict)

    def unknown(self, saga: str) -> None:
        del saga
        self.strangers += 1

    def rang(self, saga: str, number: int) -> None:
        del saga
        self.batches.append(number)

    def troubled(self, saga: str, error: Exception) -> None:
        del saga
        self.errors.append(error)


def careful_order(box: Pillarbox, observer: SagaObserver | None = None) -> type[Saga]:
    """The same, with an undoing whose reply is awaited, and with retries."""

    class CarefulOrder(Saga, name="place-order", version=1, starts_on=OrderCreated):
        reserve = step(
            send=lambda o: ReserveInventory(o.order_id),
            ok=InventoryReserved,
            fail=OutOfStock,
            undo=lambda o: ReleaseInventory(o.order_id),
            undone=InventoryReleased,
            timeout=timedelta(minutes=5),
            retries=1,
            undo_retries=1,
        )
        charge = step(
            send=lambda o: Charge(o.order_id, o.total),
            ok=PaymentProcessed,
            fail=PaymentRefused,
            timeout=timedelta(minutes=5),
        )

        async def completed(self, start: OrderCreated, ctx: Context) -> None:
            await set_status(ctx.session, start.order_id, "CONFIRMED")

        async def compensated(self, start: OrderCreated, ctx: Context, why: Why) -> None:
            await set_status(ctx.session, start.order_id, f"REJECTED: {why}")

    return box.saga(CarefulOrder, config=QUICK, observer=observer)


def quiet_bus() -> MemoryMessageBus:
    """A bus that says at once that it is empty: these tests drain it again and again."""
    return MemoryMessageBus(silence=timedelta(seconds=0.02))


class Shop:
    """Orders, inventory and payments in one database, with a bus between them."""

    def __init__(
        self,
        database: Database,
        define: Callable[[Pillarbox, SagaObserver], object] = place_order,
        bus: MemoryMessageBus | None = None,
        **options: Any,
    ) -> None:
        self.database, self.bus, self.heard = database, bus or quiet_bus(), Heard()
        self.box = Pillarbox(database.engine, self.bus, service="shop", environ={}, **options)
        define(self.box, self.heard)
        self.stock: set[str] = set()
        self.refuses: set[str] = set()
        self.restocks = False
        self.handled: list[tuple[str, str]] = []
        self._participants()

    def _participants(self) -> None:
        inventory = self.box.consumer("inventory", ["shop.inventory-command"], config=QUICK)
        payments = self.box.consumer("payments", ["shop.payment-command"], config=QUICK)

        @inventory.on(ReserveInventory)
        async def reserve(event: ReserveInventory, ctx: Context) -> None:
            self.handled.append(("reserve", event.order_id))
            good = event.order_id not in self.refuses
            self.stock |= {event.order_id} if good else set()
            self.refuses -= {event.order_id} if self.restocks else set()
            await ctx.outbox.add((InventoryReserved if good else OutOfStock)(event.order_id))

        @inventory.on(ReleaseInventory)
        async def release(event: ReleaseInventory, ctx: Context) -> None:
            self.handled.append(("release", event.order_id))
            self.stock.discard(event.order_id)
            await ctx.outbox.add(InventoryReleased(event.order_id))

        @payments.on(Charge)
        async def charge(event: Charge, ctx: Context) -> None:
            self.handled.append(("charge", event.order_id))
            good = f"pay {event.order_id}" not in self.refuses
            await ctx.outbox.add((PaymentProcessed if good else PaymentRefused)(event.order_id))

    @property
    def saga(self) -> Consumer:
        return self.box.consumers["saga-place-order"]

    async def clear(self) -> None:
        async with self.database.engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
            for table in TABLES:
                await connection.execute(text(f"DELETE FROM {table}"))

    async def order(self, *order_ids: str, tenant_id: str = "default") -> None:
        async with self.box.session_factory() as session:
            for order_id in order_ids:
                session.add(OrderRow(tenant_id=tenant_id, id=order_id, status="PENDING"))
                created = OrderCreated(order_id, Decimal("9.90"))
                await SqlAlchemyOutbox(session, tenant_id).add(created, key=order_id)
            await session.commit()

    async def publish(self) -> None:
        """Move what is recorded to the bus."""
        await self.box.projector().drain()

    async def settle(self, *names: str) -> None:
        """Let projector and consumers work until a round brings no message; all, or these."""
        await self.publish()
        before = -1
        while before != len(self.bus.messages):
            before = len(self.bus.messages)
            for name in names or self.box.consumers:
                await self.box.consumers[name].drain()
            await self.publish()

    async def saga_works(self) -> None:
        await self.publish()
        await self.saga.drain()

    async def statuses(self) -> dict[str, str]:
        async with self.database.sessions() as session:
            return dict((await session.execute(select(OrderRow.id, OrderRow.status))).all())

    async def rows(self) -> list[Row[Any]]:
        async with self.database.sessions() as session:
            return list(await session.execute(select(saga).order_by(saga.c.saga_id)))

    async def row(self) -> Row[Any]:
        (found,) = await self.rows()
        return found

    async def outcomes(self, saga_id: UUID | None = None) -> dict[tuple[str, str], str | None]:
        query = select(saga_step)
        if saga_id is not None:
            query = query.where(saga_step.c.saga_id == saga_id)
        async with self.database.sessions() as session:
            return {(row.step, row.part): row.outcome for row in await session.execute(query)}

    async def strays(self) -> list[str]:
        async with self.database.sessions() as session:
            return sorted(await session.scalars(select(saga_stray.c.verdict)))

    def sent(self, event_type: str) -> list[MessageEnvelope]:
        """Return what is on the bus of a type."""
        return [found for found in self.bus.messages if found.event_type == event_type]

    async def again(self, event_type: str, **changed: Any) -> None:
        """Put another message of a type on the bus, as the last one with another id."""
        last = self.sent(event_type)[-1]
        await self.bus.publish([last._replace(event_id=str(uuid4()), **changed)])

    async def time_passes(self) -> None:
        """Make everything due that has a time."""
        past = text(
            "UPDATE saga SET due_at = '2001-01-01 00:00:00.000000' WHERE due_at IS NOT NULL"
        )
        async with self.database.engine.begin() as connection:
            await connection.execute(past)
