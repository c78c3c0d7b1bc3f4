"""Random programs of transactions: an event is in the outbox if, and only if, they committed it."""

import asyncio
import gc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select, text

from pillarbox import SQLAlchemyUnitOfWork
from tests.support.cancelling import CancelledAt, on_falling_asleep, on_waking_up, run
from tests.support.database import PROPERTY_BACKENDS, Database, on
from tests.support.orders import Order, Plan

SIMPLE = ("new", "load", "change", "raise", "add", "plain", "flush", "write", "query", "drop")
BRACKETS = ("begin", "release", "undo", "undo")
ENDINGS = ("commit", "commit", "commit", "rollback", "leave", "error", "cancel", "fail")


@dataclass(frozen=True, slots=True)
class Savepoint:
    """A part of a transaction that is released or rolled back."""

    steps: "list[Step]"
    released: bool


Step = str | Savepoint


@dataclass(frozen=True, slots=True)
class Transaction:
    steps: list[Step]
    ending: str
    cancel_at: int


def parsed(words: list[str]) -> list[Step]:
    """Read `begin`, `release` and `undo` as brackets; what is left open at the end is released."""
    levels: list[list[Step]] = [[]]
    for word in words:
        if word == "begin":
            levels.append([])
        elif word not in BRACKETS:
            levels[-1].append(word)
        elif len(levels) > 1:
            inner = levels.pop()
            levels[-1].append(Savepoint(inner, word == "release"))
    while len(levels) > 1:
        inner = levels.pop()
        levels[-1].append(Savepoint(inner, released=True))
    return levels[0]


steps = st.lists(st.sampled_from(SIMPLE + BRACKETS), min_size=2, max_size=16).map(parsed)
transactions = st.builds(Transaction, steps, st.sampled_from(ENDINGS), st.integers(1, 8))
programs = st.lists(transactions, min_size=1, max_size=4)
FIRST = Transaction(["new"], "commit", 1)


class Undo(Exception):
    """Raised to leave a savepoint or a unit of work by an error."""


@dataclass(slots=True)
class Level:
    """What one transaction or savepoint did itself, and so would undo."""

    words: list[int] = field(default_factory=list)
    orders: list[str] = field(default_factory=list)


@dataclass(slots=True)
class World:
    """Runs a program and keeps, beside it, what should be in the database."""

    database: Database
    numbers: Callable[[], int]
    words: list[int] = field(default_factory=list)
    orders: set[str] = field(default_factory=set)

    async def transact(self, transaction: Transaction) -> None:
        work = Work(self, [Level()])
        with suppress(Undo):
            async with SQLAlchemyUnitOfWork(self.database.sessions) as uow:
                await work.begin(uow)
                await work.run(transaction.steps)
                if await work.end(transaction):
                    self.words += work.levels[0].words
                    self.orders.update(work.levels[0].orders)

    async def check(self) -> None:
        """Compare: each event once, in the order of raising, and the orders with them."""
        records = await self.database.events()
        assert [int(record.payload["text"]) for record in records] == self.words
        assert set(await self.database.order_ids()) == self.orders
        for order_id in self.orders:
            places = [
                (record.aggregate_version or 0, record.event_number or 0)
                for record in records
                if record.key == order_id
            ]
            assert places == sorted(set(places)), "version and number rise with every event"

    async def committed(self, level: Level) -> bool:
        """Read what became of a transaction that was cancelled while it committed."""
        there = {int(r.payload["text"]) for r in await self.database.events()} & set(level.words)
        assert there in (set(), set(level.words)), "all events or none"
        orders = set(await self.database.order_ids()) & set(level.orders)
        assert orders in (set(), set(level.orders)), "all orders or none"
        if level.words and level.orders:
            assert bool(there) == bool(orders), "events and orders together"
        return bool(there or orders)


@dataclass(slots=True)
class Work:
    """One transaction under way."""

    world: World
    levels: list[Level]
    loaded: list[Order] = field(default_factory=list)
    uow: SQLAlchemyUnitOfWork = field(init=False)
    plan: Plan = field(init=False)

    async def begin(self, uow: SQLAlchemyUnitOfWork) -> None:
        self.uow, self.plan = uow, Plan("p")
        uow.track(self.plan)

    def word(self) -> str:
        self.levels[-1].words.append(number := self.world.numbers())
        return str(number)

    async def run(self, steps: list[Step]) -> None:
        for step in steps:
            if isinstance(step, Savepoint):
                await self.savepoint(step)
            else:
                await self.simple(step)

    async def savepoint(self, savepoint: Savepoint) -> None:
        self.levels.append(Level())
        loaded = list(self.loaded)
        with suppress(Undo):
            async with self.uow.savepoint():
                await self.run(savepoint.steps)
                if not savepoint.released:
                    raise Undo
        inner = self.levels.pop()
        if savepoint.released:
            self.levels[-1].words += inner.words
            self.levels[-1].orders += inner.orders
        else:
            self.loaded = loaded

    async def simple(self, step: str) -> None:
        match step:
            case "new":
                await self.place()
            case "load" if self.world.orders:
                found = await self.uow.session.get_one(Order, min(self.world.orders))
                self.loaded.append(found)
            case "change" if self.loaded:
                self.loaded[-1].total = self.world.numbers()
                self.loaded[-1].note(self.word())
            case "raise" if self.loaded:
                self.loaded[-1].note(self.word())
            case "drop":
                self.loaded.clear()
                gc.collect(0)
            case _:
                await self.of_the_session(step)

    async def place(self) -> None:
        order = Order(id=f"o-{self.world.numbers()}")
        order.note(self.word())
        self.levels[-1].orders.append(order.id)
        self.loaded.append(order)
        await self.uow.repository(Order).save(order)

    async def of_the_session(self, step: str) -> None:
        match step:
            case "add":
                await self.uow.outbox.add(topic="manual", payload={"text": self.word()}, key="k")
            case "plain":
                self.plan.note(self.word())
            case "flush":
                await self.uow.session.flush()
            case "write":
                await self.uow.outbox.flush()
            case "query":
                await self.uow.session.scalars(select(Order.id))

    async def end(self, transaction: Transaction) -> bool:
        """End the transaction, and tell whether it committed."""
        ending = transaction.ending
        if ending == "cancel" and not self.world.database.is_postgres:
            ending = "error"  # a statement cancelled in aiosqlite leaves its file locked
        match ending:
            case "commit":
                await self.uow.commit()
            case "rollback":
                await self.uow.rollback()
            case "error":
                raise Undo
            case "cancel":
                how = on_falling_asleep if transaction.cancel_at % 2 else on_waking_up
                at = frozenset({(transaction.cancel_at + 1) // 2})
                if await run(CancelledAt(self.uow.commit(), at, how)):
                    await self.uow.__aexit__()
                    return await self.world.committed(self.levels[0])
            case "fail":
                with suppress(Exception):
                    self.uow.session.add(Order(id="never", total=-1))
                    await self.uow.commit()
            case _:
                pass
        return ending in ("commit", "cancel")


@on(*PROPERTY_BACKENDS)
@settings(
    max_examples=150,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(program=programs)
async def test_an_event_is_in_the_outbox_if_and_only_if_its_transaction_committed(
    database: Database, program: list[Transaction]
) -> None:
    async with database.engine.begin() as connection:
        for table in ("outbox", "orders"):
            await connection.execute(text(f"DELETE FROM {table}"))
    world = World(database, count(1).__next__)

    async with asyncio.timeout(30):
        for transaction in [FIRST, *program]:
            await world.transact(transaction)
            await world.check()
