"""What recording an event costs the business transaction.

PostgreSQL 18 with fsync and default durability, the shipped table with all its indexes, the same
driver, engine and tenant setting on all sides.
"""

import itertools
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Literal, Self, get_args

import asyncpg
import psycopg
from sqlalchemy import insert, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker

from benchmarks import shop
from benchmarks.measure import Block, Operation, alternate, one_by_one, side_by_side
from benchmarks.report import Report, Row, at_least, at_most
from benchmarks.shop import (
    Order,
    OrderLine,
    PlainOrder,
    PlainOrderLine,
    order_confirmed,
    row_by_hand,
)
from pillarbox import NewEvent, SqlAlchemyOutbox, SQLAlchemyUnitOfWork
from pillarbox.schema.tables import outbox
from pillarbox.servers import Postgres

Change = Literal["insert", "update", "order"]
"""One row is inserted; one is loaded and updated; an order is inserted with its four lines."""

CHANGES: Final[tuple[Change, ...]] = get_args(Change)
WRITERS: Final = 8
TRANSACTIONS: Final = {1: 40, WRITERS: 160}
BLOCKS: Final = {1: 12, WRITERS: 6}
BULKS: Final = (1_000, 10_000)
ROWS_PER_ROUND: Final = 20_000

OURS: Final = "ours"
WITHOUT: Final = "same without event"
BY_HAND: Final = "INSERT by hand"
PLAIN: Final = "INSERT by hand, plain session"
CORE: Final = "Core insert, ready rows"
COPY: Final = "COPY, ready rows"

_INSERT: Final = insert(outbox)
_COLUMNS: Final = tuple(row_by_hand(order_confirmed(0)))
_LOAD: Final = "SELECT id, customer, cents, version FROM shop_order WHERE id = {}"
_CHANGE: Final = "UPDATE shop_order SET cents = cents + 1, version = version + 1 WHERE id = {}"
_ADD: Final = f"INSERT INTO outbox ({', '.join(_COLUMNS)}) VALUES ({{}})"


async def run(report: Report, rounds: int) -> None:
    """Measure with both drivers."""
    report.packages = ("sqlalchemy", *shop.DRIVERS)
    with Postgres(version=18) as postgres:
        report.servers["PostgreSQL"] = postgres.version
        shop.create_tables(postgres.url)
        for driver in shop.DRIVERS:
            engine = shop.engine_for(postgres.url, driver, connections=WRITERS)
            await _measure_transactions(report, rounds, engine, driver)
            await _measure_driver(report, rounds, engine, driver)
            await _measure_bulks(report, rounds, engine, driver)
            await engine.dispose()


async def _measure_transactions(
    report: Report, rounds: int, engine: AsyncEngine, driver: str
) -> None:
    for change, writers in itertools.product(CHANGES, (1, WRITERS)):
        measure = f"{driver}, {change} + 1 event, {writers} writer{'s'[: writers - 1]}"
        if not report.wants(measure):
            continue
        work = Transactions(engine, change)
        operations = {
            OURS: work.ours,
            WITHOUT: work.without_event,
            BY_HAND: work.by_hand,
            PLAIN: work.by_hand_in_a_plain_session,
        }
        writing = [one_by_one(operations[name], 1) for name in (OURS, BY_HAND, PLAIN)]
        await _check_alike(work, *writing)
        found = await alternate(
            {name: _block(operation, writers) for name, operation in operations.items()},
            rounds=rounds,
            blocks=BLOCKS[writers],
            before_round=work.start_afresh,
        )
        bars = {WITHOUT: at_most(1.25 if writers == 1 else 1.5), BY_HAND: at_most(1.1), PLAIN: None}
        for reference, bar in bars.items():
            ours, theirs = _millis(found[OURS]), _millis(found[reference])
            report.add(Row(measure, "ms", ours, reference, theirs, bar))


async def _measure_driver(report: Report, rounds: int, engine: AsyncEngine, driver: str) -> None:
    """Show what one more INSERT costs with nothing but the driver: the floor for everybody."""
    for writers in (1, WRITERS):
        measure = f"{driver} alone, update + 1 event by hand, {writers} writer{'s'[: writers - 1]}"
        if not report.wants(measure):
            continue
        work = Transactions(engine, "update")
        async with BareDriver(engine, writers) as bare:
            found = await alternate(
                {
                    BY_HAND: _block(bare.with_event, writers),
                    WITHOUT: _block(bare.without_event, writers),
                },
                rounds=rounds,
                blocks=BLOCKS[writers],
                before_round=work.start_afresh,
            )
        with_event, without = _millis(found[BY_HAND]), _millis(found[WITHOUT])
        report.add(Row(measure, "ms", with_event, WITHOUT, without))


async def _measure_bulks(report: Report, rounds: int, engine: AsyncEngine, driver: str) -> None:
    for size in BULKS:
        measure = f"{driver}, add_many of {size:,}"
        if not report.wants(measure):
            continue
        work = Bulk(engine, size)
        sides: Mapping[str, Block] = {OURS: work.ours, CORE: work.core, COPY: work.copy}
        await _check_alike(work, *sides.values())
        found = await alternate(
            sides,
            rounds=rounds,
            blocks=ROWS_PER_ROUND // size,
            before_round=work.start_afresh,
        )
        for reference, bar in ((CORE, at_least(0.8)), (COPY, None)):
            ours, theirs = _rates(found[OURS]), _rates(found[reference])
            report.add(Row(measure, "rows/s", ours, reference, theirs, bar))


class Transactions:
    """The same business transaction in four ways."""

    def __init__(self, engine: AsyncEngine, change: Change) -> None:
        self.engine = engine
        self._change: Change = change
        self._sessions = async_sessionmaker(engine, expire_on_commit=False)
        self._new_ids = itertools.count(shop.KEYS)
        self._random = random.Random(3)

    async def ours(self, writer: int) -> None:
        """Raise an event in a unit of work."""
        async with SQLAlchemyUnitOfWork(self._sessions) as uow:
            order = await self._changed(uow, writer)
            order.add_event(order_confirmed(order.id))
            await uow.commit()

    async def without_event(self, writer: int) -> None:
        """Make the same event and leave it at that."""
        async with SQLAlchemyUnitOfWork(self._sessions) as uow:
            order = await self._changed(uow, writer)
            order_confirmed(order.id)
            await uow.commit()

    async def by_hand(self, writer: int) -> None:
        """Write the same row with a hand-written INSERT in the same unit of work."""
        async with SQLAlchemyUnitOfWork(self._sessions) as uow:
            order = await self._changed(uow, writer)
            await uow.session.flush()
            row = row_by_hand(order_confirmed(order.id), order.version)
            await uow.session.execute(_INSERT, row)
            await uow.commit()

    async def by_hand_in_a_plain_session(self, writer: int) -> None:
        """Write the same row by hand where nothing of ours is in use."""
        async with self._sessions() as session:
            order = await self._changed_by_hand(session, writer)
            await session.flush()
            row = row_by_hand(order_confirmed(order.id), order.version)
            await session.execute(_INSERT, row)
            await session.commit()

    async def start_afresh(self) -> None:
        """Empty the outbox, and clear the last round out of the business table."""
        async with self.engine.connect() as connection:
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            await connection.execute(text("TRUNCATE outbox"))
            await connection.execute(text(f"DELETE FROM shop_order WHERE id >= {shop.KEYS}"))
            await connection.execute(text("VACUUM ANALYZE shop_order"))

    async def _changed(self, uow: SQLAlchemyUnitOfWork, writer: int) -> Order:
        orders = uow.repository(Order)
        if self._change != "update":
            order = Order(id=next(self._new_ids), customer="Ada Lovelace", cents=1)
            if lines := self._lines():
                order.lines = [OrderLine(**line) for line in lines]
            await orders.save(order)
            return order
        found = await orders.get(self._known_id(writer))
        assert found is not None
        found.cents += 1
        return found

    async def _changed_by_hand(self, session: AsyncSession, writer: int) -> PlainOrder:
        if self._change != "update":
            order = PlainOrder(id=next(self._new_ids), customer="Ada Lovelace", cents=1)
            if lines := self._lines():
                order.lines = [PlainOrderLine(**line) for line in lines]
            session.add(order)
            return order
        found = await session.get(PlainOrder, self._known_id(writer))
        assert found is not None
        found.cents += 1
        return found

    def _lines(self) -> list[dict[str, Any]]:
        return [
            {"number": number, "sku": f"sku-{number}", "quantity": 1, "cents": 1999}
            for number in range(shop.LINES if self._change == "order" else 0)
        ]

    def _known_id(self, writer: int) -> int:
        """Choose an order of this writer's own: shared ones would be stale now and then."""
        return self._random.randrange(0, shop.KEYS, WRITERS) + writer


class BareDriver:
    """The update of an order with prepared statements on the driver's own connections."""

    def __init__(self, engine: AsyncEngine, writers: int) -> None:
        self._engine, self._writers = engine, writers
        self._asyncpg = engine.dialect.driver == "asyncpg"
        self._connections: list[Any] = []
        self._random = random.Random(3)

    async def __aenter__(self) -> Self:
        url = self._engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
        for _ in range(self._writers):
            self._connections.append(
                await (asyncpg.connect(url) if self._asyncpg else _connect_with_psycopg(url))
            )
        return self

    async def __aexit__(self, *failure: object) -> None:
        for connection in self._connections:
            await connection.close()

    async def with_event(self, writer: int) -> None:
        """Change an order and insert the event's row."""
        await self._change(writer, self._add)

    async def without_event(self, writer: int) -> None:
        """Change an order."""
        await self._change(writer, None)

    async def _change(self, writer: int, then: Callable[[Any, int], Awaitable[Any]] | None) -> None:
        connection = self._connections[writer]
        order_id = self._random.randrange(0, shop.KEYS, WRITERS) + writer
        async with connection.transaction():
            for statement in (_LOAD, _CHANGE):
                await connection.execute(self._written(statement, 1), *self._given([order_id]))
            if then is not None:
                await then(connection, order_id)

    async def _add(self, connection: Any, order_id: int) -> None:
        row = list(row_by_hand(order_confirmed(order_id), 2).values())
        await connection.execute(self._written(_ADD, len(row)), *self._given(row))

    def _given(self, values: list[Any]) -> list[Any]:
        return values if self._asyncpg else [values]

    def _written(self, statement: str, values: int) -> str:
        places = (f"${at}" if self._asyncpg else "%s" for at in range(1, values + 1))
        return statement.format(", ".join(places))


async def _connect_with_psycopg(url: str) -> Any:
    return await psycopg.AsyncConnection.connect(url, autocommit=True, prepare_threshold=0)


class Bulk:
    """Many events in one transaction, in three ways; rows by hand are ready beforehand."""

    def __init__(self, engine: AsyncEngine, size: int) -> None:
        self.engine = engine
        self._size = size
        self._sessions = async_sessionmaker(engine, expire_on_commit=False)
        self._events = [order_confirmed(number % shop.KEYS) for number in range(size)]

    async def ours(self) -> list[float]:
        """Record event objects: they are checked, encoded, routed and written."""
        events = [NewEvent(event=event, aggregate_id=event.order_id) for event in self._events]
        async with self._sessions() as session:
            start = time.perf_counter()
            await SqlAlchemyOutbox(session).add_many(events)
            await session.commit()
            return self._each(start)

    async def core(self) -> list[float]:
        """Insert with SQLAlchemy Core, which the drivers turn into a pipeline of inserts."""
        rows = [row_by_hand(event) for event in self._events]
        async with self._sessions() as session:
            start = time.perf_counter()
            await session.execute(_INSERT, rows)
            await session.commit()
            return self._each(start)

    async def copy(self) -> list[float]:
        """Send with COPY: nothing is faster, and it knows no ON CONFLICT."""
        rows = [tuple(row_by_hand(event).values()) for event in self._events]
        async with self.engine.connect() as connection:
            driver: Any = (await connection.get_raw_connection()).driver_connection
            start = time.perf_counter()
            if self.engine.dialect.driver == "asyncpg":
                await driver.copy_records_to_table("outbox", columns=_COLUMNS, records=rows)
            else:
                await _copy_with_psycopg(driver, rows)
            return self._each(start)

    async def start_afresh(self) -> None:
        """Empty the outbox."""
        async with self.engine.begin() as connection:
            await connection.execute(text("TRUNCATE outbox"))

    def _each(self, start: float) -> list[float]:
        return [(time.perf_counter() - start) / self._size]


async def _copy_with_psycopg(connection: Any, rows: list[tuple[Any, ...]]) -> None:
    statement = f"COPY outbox ({', '.join(_COLUMNS)}) FROM STDIN"
    async with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for row in rows:
            await copy.write_row(row)
    await connection.commit()


def _block(operation: Operation, writers: int) -> Block:
    if writers == 1:
        return one_by_one(operation, TRANSACTIONS[writers])
    return side_by_side(operation, TRANSACTIONS[writers], writers=writers)


def _millis(seconds: Sequence[float]) -> list[float]:
    return [1_000 * value for value in seconds]


def _rates(seconds: Sequence[float]) -> list[float]:
    return [1 / value for value in seconds]


async def _check_alike(work: Transactions | Bulk, *writes: Block) -> None:
    """Make sure that all ways write the same rows: equal in number and in bytes."""
    seen = set()
    for write in writes:
        await work.start_afresh()
        await write()
        async with work.engine.connect() as connection:
            size = text("SELECT count(*), sum(pg_column_size(outbox.*)) FROM outbox")
            seen.add(tuple((await connection.execute(size)).one()))
    if len(seen) != 1:
        raise AssertionError(f"the sides write different rows (count, bytes): {sorted(seen)}")
