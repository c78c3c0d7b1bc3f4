"""Random transactions of ten tenants, with errors, rollbacks and cancellations in between."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from sqlalchemy import select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox import tenant
from tests.tenancy.shop import Order
from tests.tenancy.wall import Wall

TENANTS = tuple(f"tenant-{number}" for number in range(10))
AT_ONCE = 8


class Unlucky(Exception):
    """A business error in the middle of a transaction."""


@dataclass(slots=True)
class Interleavings:
    """Run transactions over one engine and note each foreign row that one of them saw."""

    wall: Wall
    seed: int
    leaks: list[str] = field(default_factory=list)
    ended: dict[str, int] = field(default_factory=dict)
    _ids: int = 100

    async def run(self, count: int) -> None:
        """Run so many transactions, a few at a time, as the seed decides."""
        chance = random.Random(self.seed)
        waiting = iter([(chance.choice(TENANTS), chance.random()) for _ in range(count)])

        async def work() -> None:
            for name, luck in waiting:
                await self._transaction(name, random.Random(luck))

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(work())

    async def _transaction(self, name: str, chance: random.Random) -> None:
        kinds: tuple[Callable[[str, random.Random], Awaitable[None]], ...] = (
            self._write, self._read, self._roll_back, self._fail, self._fail_in_database,
            self._stranger, self._cancelled,
        )  # fmt: skip
        kind = chance.choices(kinds, weights=(6, 6, 2, 2, 2, 2, 2))[0]
        await kind(name, chance)
        ended = kind.__name__.strip("_")
        self.ended[ended] = self.ended.get(ended, 0) + 1

    @asynccontextmanager
    async def _session(self, name: str) -> AsyncIterator[AsyncSession]:
        with tenant(name):
            async with self.wall.sessions() as session:
                yield session

    async def _look(self, session: AsyncSession, name: str) -> None:
        """Read by the ORM and, as often, past it."""
        seen = {order.tenant_id for order in await session.scalars(select(Order).limit(5))}
        for table in ("shop_orders", "outbox"):
            seen |= set(await session.scalars(text(f"SELECT DISTINCT tenant_id FROM {table}")))
        if not seen <= {name}:
            self.leaks.append(f"{name} saw {seen}")

    def _place(self, session: AsyncSession) -> None:
        self._ids += 1
        session.add(Order.place(self._ids))

    async def _write(self, name: str, _: random.Random) -> None:
        async with self._session(name) as session:
            self._place(session)
            await session.commit()

    async def _read(self, name: str, chance: random.Random) -> None:
        async with self._session(name) as session:
            await self._look(session, name)
            if chance.random() < 0.5:
                async with session.begin_nested() as savepoint:
                    await savepoint.rollback()
                await self._look(session, name)

    async def _roll_back(self, name: str, _: random.Random) -> None:
        async with self._session(name) as session:
            self._place(session)
            await session.flush()
            await session.rollback()
            await self._look(session, name)

    async def _fail(self, name: str, _: random.Random) -> None:
        with suppress(Unlucky):
            async with self._session(name) as session:
                await self._look(session, name)
                raise Unlucky

    async def _fail_in_database(self, name: str, _: random.Random) -> None:
        with suppress(DBAPIError):
            async with self._session(name) as session:
                await session.execute(text("SELECT 1 / 0"))

    async def _stranger(self, *_: object) -> None:
        """Come without a tenant over the same connections: what one left behind would show."""
        async with self.wall.engine.connect() as connection:
            seen = await connection.scalar(text("SELECT count(*) FROM shop_orders"))
            if seen:
                self.leaks.append(f"a stranger saw {seen} rows")

    async def _cancelled(self, name: str, chance: random.Random) -> None:
        """Stop a transaction after some turns of the event loop."""
        kind = chance.choice((self._write, self._read, self._roll_back))
        task = asyncio.ensure_future(kind(name, chance))
        for _ in range(chance.randrange(60)):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
