"""The business of the benchmarks: orders, the event they raise, and its outbox row by hand."""

import random
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

import orjson
from sqlalchemy import ForeignKey, create_engine, insert
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, declared_attr, mapped_column, relationship

from pillarbox import AggregateRoot, DomainEvent, schema
from pillarbox.database import sync_url
from pillarbox.event.ids import id_maker

KEYS: Final = 5_000
DRIVERS: Final = ("asyncpg", "psycopg")
LINES: Final = 4

_random = random.Random(7)
_new_id = id_maker()


class _OrderColumns:
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    customer: Mapped[str]
    cents: Mapped[int]
    version: Mapped[int]

    @declared_attr.directive
    @classmethod
    def __mapper_args__(cls) -> dict[str, Any]:
        return {"version_id_col": cls.version}


class _LineColumns:
    order_id: Mapped[int] = mapped_column(
        ForeignKey("shop_order.id", ondelete="CASCADE"), primary_key=True
    )
    number: Mapped[int] = mapped_column(primary_key=True)
    sku: Mapped[str]
    quantity: Mapped[int]
    cents: Mapped[int]


class _Base(DeclarativeBase):
    """The business's tables."""


class OrderLine(_LineColumns, _Base):
    """A line of an order."""

    __tablename__ = "shop_order_line"


class Order(_OrderColumns, AggregateRoot, _Base):
    """An order that raises events."""

    __tablename__ = "shop_order"
    lines: Mapped[list[OrderLine]] = relationship(lazy="raise", passive_deletes=True)


class _PlainBase(DeclarativeBase):
    """The same tables for a program that knows nothing of Pillarbox."""


class PlainOrderLine(_LineColumns, _PlainBase):
    """A line of an order in a program without Pillarbox."""

    __tablename__ = "shop_order_line"


class PlainOrder(_OrderColumns, _PlainBase):
    """The same order in a program without Pillarbox."""

    __tablename__ = "shop_order"
    lines: Mapped[list[PlainOrderLine]] = relationship(lazy="raise", passive_deletes=True)


class OrderConfirmed(DomainEvent):
    """An event of about 400 bytes of JSON."""

    aggregate_type = "Order"
    order_id: int
    customer: str
    cents: int
    lines: list[dict[str, str | int]]
    note: str


def order_confirmed(order_id: int) -> OrderConfirmed:
    """Make an event with a payload of its own."""
    lines: list[dict[str, str | int]] = [
        {"sku": f"{_random.getrandbits(64):016x}", "quantity": 1 + n, "cents": 1999}
        for n in range(LINES)
    ]
    note = f"{_random.getrandbits(400):0100x}"
    return OrderConfirmed(order_id, "Ada Lovelace", 7996, lines, note)


def row_by_hand(event: OrderConfirmed, version: int | None = None) -> dict[str, Any]:
    """Return the outbox row that ours writes for this event, as one would write it by hand.

    Without a version it is the row of an event that was added by hand.
    """
    key = str(event.order_id)
    return {
        "occurred_at": datetime.now(UTC),
        "shard_hash": int.from_bytes(sha256(f"default\0{key}".encode()).digest()[:2], "big"),
        "id": _new_id(),
        "tenant_id": "default",
        "event_type": "OrderConfirmed",
        "topic": "default.order",
        "key": key,
        "aggregate_type": "Order",
        "aggregate_id": key,
        "aggregate_version": version,
        "event_number": None if version is None else 1,
        "schema_version": 1,
        "event_metadata": "{}",
        "content_type": "application/json",
        "payload": orjson.dumps(vars(event)).decode(),
    }


def engine_for(url: str, driver: str, *, connections: int) -> AsyncEngine:
    """Make an engine; its JSON columns take text that is encoded already."""
    return create_async_engine(
        url.replace("postgresql://", f"postgresql+{driver}://"),
        pool_size=connections,
        max_overflow=0,
        json_serializer=str,
    )


def create_tables(url: str) -> None:
    """Create the shipped schema and the business's table, and fill the latter."""
    engine = create_engine(sync_url(url))
    schema.apply(engine)
    with engine.begin() as connection:
        _Base.metadata.create_all(connection)
        rows = [
            {"id": n, "customer": "Ada Lovelace", "cents": 0, "version": 1} for n in range(KEYS)
        ]
        connection.execute(insert(Order), rows)
    engine.dispose()
