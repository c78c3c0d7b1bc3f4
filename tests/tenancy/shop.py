"""A shop of several tenants: business tables behind the wall."""

from typing import Any

from sqlalchemy import ForeignKey, Integer, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from pillarbox import AggregateRoot, DomainEvent, TenantScoped

ACME, GLOBEX = "acme", "globex"


class Base(DeclarativeBase):
    """The tables of the shop."""


class OrderPlaced(DomainEvent):
    order_id: int


class Order(TenantScoped, AggregateRoot, Base):
    """An order whose id is unique among all tenants."""

    __tablename__ = "shop_orders"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    name: Mapped[str] = mapped_column(String(64), default="1")
    version: Mapped[int] = mapped_column(Integer)
    lines: Mapped[list["Line"]] = relationship(back_populates="order")
    __mapper_args__ = {"version_id_col": version}  # noqa: RUF012 - mypy knows it as no ClassVar

    @classmethod
    def place(cls, order_id: int, **columns: Any) -> "Order":
        order = cls(id=order_id, **columns)
        order.add_event(OrderPlaced(order_id))
        return order


class Line(TenantScoped, Base):
    """A line of an order; nothing but the wall keeps it from pointing to a foreign one."""

    __tablename__ = "shop_lines"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    order_id: Mapped[int] = mapped_column(ForeignKey("shop_orders.id"))
    order: Mapped[Order | None] = relationship(back_populates="lines")


class Customer(TenantScoped, Base):
    """A customer whose key begins with the tenant, as the docs advise."""

    __tablename__ = "shop_customers"
    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    name: Mapped[str] = mapped_column(String(64), default="1")


TABLES = tuple(table.name for table in Base.metadata.sorted_tables)

# The tables of Pillarbox that belong to tenants and to which the application may write.
OURS = (
    "outbox",
    "inbox",
    "inbox_applied",
    "inbox_attempt",
    "inbox_parked",
    "inbox_task",
    "idempotency",
    "saga",
    "saga_step",
    "saga_stray",
)

# What stands in the tables at the start of a test: one order, line and customer of each tenant,
# a line of each that points to the other's order, and a row of each in our tables.
SEED = """
INSERT INTO shop_orders (id, tenant_id, name, version) VALUES
    (1, 'acme', '1', 1), (2, 'globex', 'secret', 1);
INSERT INTO shop_lines (id, tenant_id, order_id) VALUES
    (1, 'acme', 1), (2, 'globex', 2), (3, 'acme', 2), (4, 'globex', 1);
INSERT INTO shop_customers (id, tenant_id, name) VALUES
    (1, 'acme', '1'), (1, 'globex', 'secret'), (2, 'globex', 'secret');
INSERT INTO outbox (id, tenant_id, occurred_at, shard_hash, event_type, topic, key) VALUES
    ('01900000-0000-7000-8000-000000000001', 'acme', now(), 1, 'T', 't', 'k'),
    ('01900000-0000-7000-8000-000000000002', 'globex', now(), 1, 'T', 't', 'k');
INSERT INTO inbox (tenant_id, consumer, message_id, event_type, payload_hash)
    SELECT tenant, 'c', 'm-' || tenant, 'T', 'secret' FROM unnest('{acme,globex}'::text[]) tenant;
INSERT INTO inbox_applied
    (tenant_id, consumer, source, aggregate_type, aggregate_id, version, number)
    SELECT tenant, 'c', 's', 't', 'k', 1, 1 FROM unnest('{acme,globex}'::text[]) tenant;
INSERT INTO inbox_attempt (tenant_id, consumer, message_id)
    SELECT tenant, 'c', 'm-' || tenant FROM unnest('{acme,globex}'::text[]) tenant;
INSERT INTO inbox_parked (tenant_id, parked_id, consumer, message_id, topic, reason, state)
    SELECT tenant, gen_random_uuid(), 'c', 'm-' || tenant, 't', 'failed', 'parked'
    FROM unnest('{acme,globex}'::text[]) tenant;
INSERT INTO inbox_task (tenant_id, task_id, consumer, message_id, name)
    SELECT tenant, gen_random_uuid(), 'c', 'm-' || tenant, 'mail'
    FROM unnest('{acme,globex}'::text[]) tenant;
INSERT INTO idempotency
    (tenant_id, principal, operation, key_hash, fingerprint, state, expires_at)
    SELECT tenant, 'p', 'POST /orders', 'k', 'f', 'done', now()
    FROM unnest('{acme,globex}'::text[]) tenant;
INSERT INTO saga (tenant_id, saga_id, name, version, state, start_id, start, steps)
    SELECT tenant, '01900000-0000-7000-8000-000000000001', 's', 1, 'STUCK', 'secret', '{}', '[]'
    FROM unnest('{acme,globex}'::text[]) tenant;
INSERT INTO saga_step (tenant_id, saga_id, step, part, number, messages)
    SELECT tenant_id, saga_id, 'a', 'do', 0, '[]' FROM saga;
INSERT INTO saga_stray (tenant_id, saga_id, message_id, verdict, event_type)
    SELECT tenant_id, saga_id, 'm', 'late', 'T' FROM saga
"""
