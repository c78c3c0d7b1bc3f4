"""Checked by mypy, never run: what the public surface promises to a type checker.

An expected error carries its own ignore; mypy warns when the error is no longer there.
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, assert_type
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from pillarbox import (
    AggregateRoot,
    CommitOutcome,
    CommitUnknown,
    DomainEvent,
    EventRegistry,
    MessageEnvelope,
    NewEvent,
    Outbox,
    Pillarbox,
    SqlAlchemyOutbox,
    SQLAlchemyUnitOfWork,
    SyncSqlAlchemyOutbox,
)


class Base(DeclarativeBase):
    pass


class WithoutDecorator(DomainEvent):
    aggregate_type = "order"
    order_id: str
    total: Decimal = Decimal(0)


@dataclass(frozen=True)
class WithDecorator(DomainEvent):
    order_id: str


class Derived(WithoutDecorator):
    reason: str = "none"


class Order(AggregateRoot, Base):
    __tablename__ = "orders"
    id: Mapped[str] = mapped_column(primary_key=True)


class Plan(AggregateRoot):
    id: str


class PlanRepository:
    def __init__(self, session: AsyncSession) -> None: ...

    async def save(self, aggregate: Plan) -> None: ...

    async def get(self, aggregate_id: Any) -> Plan | None: ...


def events_are_dataclasses() -> None:
    event = WithoutDecorator("o-1", total=Decimal(1))
    assert_type(event.order_id, str)
    assert_type(event.total, Decimal)
    assert_type(Derived("o-1", Decimal(1), "because").reason, str)
    WithDecorator(order_id="o-1")


def wrong_events_are_found() -> None:
    WithoutDecorator()  # type: ignore[call-arg]  # order_id is missing
    WithoutDecorator(7)  # type: ignore[arg-type]  # order_id is a text
    WithDecorator("o-1", "more")  # type: ignore[call-arg]  # there is one field
    WithoutDecorator("o-1").order_id = "o-2"  # type: ignore[misc]  # frozen
    WithDecorator("o-1").order_id = "o-2"  # type: ignore[misc]  # frozen


async def repositories_know_their_aggregate(uow: SQLAlchemyUnitOfWork, order: Order) -> None:
    orders = uow.repository(Order)
    assert_type(await orders.get("o-1"), Order | None)
    assert_type(await uow.repository(Plan).get("plan-1"), Plan | None)
    await orders.save(order)
    await orders.save(Plan())  # type: ignore[arg-type]  # a plan is no order
    uow.repository(str)  # type: ignore[type-var]  # a text is no aggregate
    uow.track(order)
    assert_type(uow.session, AsyncSession)
    assert_type(uow.outbox, SqlAlchemyOutbox)


async def a_unit_of_work_gives_itself(box: Pillarbox) -> None:
    async with box.unit_of_work() as uow:
        assert_type(uow, SQLAlchemyUnitOfWork)
    box.repository(Plan, PlanRepository)


async def outboxes_return_ids(session: AsyncSession) -> None:
    outbox = SqlAlchemyOutbox(session)
    assert_type(await outbox.add(topic="orders.order", payload={"total": 1}), UUID)
    assert_type(await outbox.add_many([NewEvent(topic="orders.order", payload={})]), list[UUID])
    port: Outbox = outbox
    assert_type(await port.add(WithDecorator("o-1")), UUID)
    await outbox.add(tpoic="orders.order")  # type: ignore[call-arg]  # a typing mistake
    SyncSqlAlchemyOutbox(session)  # type: ignore[arg-type]  # an async session


async def the_rest(error: CommitUnknown, box: Pillarbox, aggregate: Order) -> None:
    assert_type(await error.outcome(box.session_factory), CommitOutcome)
    assert_type(aggregate.add_event(WithDecorator("o-1")), UUID)
    assert_type(MessageEnvelope("e-1", "OrderPlaced").body(), bytes | None)
    assert_type(EventRegistry().event(WithDecorator), type[WithDecorator])
