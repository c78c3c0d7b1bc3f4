"""Keeping a read model: batches beside one transaction for each event; a rebuild beside bare SQL.

Both measures read the same outbox rows and end with the same rows of accounts, which is checked. The first
reference is the same runner with a batch of one. The second is one `INSERT … SELECT` that folds the rows in
the database: no versions, no position, no types, nothing that could be resumed.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import String, select, text
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from benchmarks.backlog import create_template, postgres_server
from benchmarks.measure import alternate
from benchmarks.report import Report, Row, at_least
from pillarbox import Change, DomainEvent, Increment, ReadModel, on
from pillarbox.database import make_engine
from pillarbox.readmodel.config import ReadModelConfig
from pillarbox.readmodel.parts import Parts
from pillarbox.readmodel.rebuild import LogRebuild
from pillarbox.readmodel.runner import LogRunner
from pillarbox.servers import Postgres

ROUNDS: Final = 3
BLOCKS: Final = 1
EVENTS: Final = 10_000
ONE_BY_ONE: Final = 200
ACCOUNTS: Final = 2_000
BATCH: Final = 1_000
DRIVERS: Final = ("psycopg", "asyncpg")
_FILL: Final = text("""
    INSERT INTO outbox (seq, occurred_at, shard_hash, id, status, event_type, topic, key,
        aggregate_type, aggregate_id, aggregate_version, event_number, payload)
    SELECT n, now(), n % 65536, gen_random_uuid(), 'SENT', 'Deposited', 'bank.account',
        'account-' || n % :accounts, 'account', 'account-' || n % :accounts, 1 + n / :accounts, 1,
        json_build_object('account_id', 'account-' || n % :accounts, 'cents', n,
            'note', repeat('x', 300))
    FROM generate_series(1, :events) AS n
""")
_FOLD: Final = text("""
    INSERT INTO bench_account (tenant_id, account_id, deposits, cents)
    SELECT tenant_id, payload ->> 'account_id', count(*), sum((payload ->> 'cents')::bigint)
    FROM outbox WHERE event_type = 'Deposited' GROUP BY 1, 2
""")


class Base(DeclarativeBase):
    """The tables of the model."""


class Account(Base):
    """A row for each account."""

    __tablename__ = "bench_account"
    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    account_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    deposits: Mapped[int]
    cents: Mapped[int]


class Deposited(DomainEvent):
    """The event of the log."""

    account_id: str
    cents: int
    note: str


class Accounts(ReadModel, name="accounts", table=Account):
    """The model of both measures."""

    @on(Deposited)
    def deposited(self, event: Deposited) -> Change:
        """Add a deposit."""
        return Increment(event.account_id, deposits=1, cents=event.cents)


@dataclass(slots=True)
class Side:
    """A database with a log of so many events."""

    engine: AsyncEngine
    events: int

    def parts(self, batch: int) -> Parts:
        """Return the parts of a runner."""
        sessions = async_sessionmaker(self.engine, expire_on_commit=False)
        return Parts(sessions, ReadModelConfig(batch_size=batch))

    async def follow(self, batch: int, events: int) -> Sequence[float]:
        """Apply so many events, so many at a time; return the seconds for one."""
        await self.empty()
        runner, began = LogRunner(Accounts(), self.parts(batch)), time.perf_counter()
        for _ in range(events // batch):
            await runner.look()
        took = time.perf_counter() - began
        await self.check(events)
        return [took / events]

    async def rebuild(self) -> Sequence[float]:
        """Build the model again; return the seconds for one event."""
        await self.empty()
        began = time.perf_counter()
        await LogRebuild(Accounts(), self.parts(BATCH)).run()
        took = time.perf_counter() - began
        await self.check(self.events)
        return [took / self.events]

    async def fold(self) -> Sequence[float]:
        """Fold the log by one statement; return the seconds for one event."""
        await self.empty()
        began = time.perf_counter()
        async with self.engine.begin() as connection:
            await connection.execute(_FOLD)
        took = time.perf_counter() - began
        await self.check(self.events)
        return [took / self.events]

    async def check(self, events: int) -> None:
        """Refuse a result that is not the fold."""
        async with self.engine.connect() as connection:
            rows: Any = await connection.execute(select(Account.deposits, Account.cents))
            found = rows.all()
        assert sum(row[0] for row in found) == events
        assert sum(row[1] for row in found) == events * (events + 1) // 2

    async def empty(self) -> None:
        """Forget the model, and settle what the last round left to the server."""
        async with self.engine.connect() as connection:
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            tables = "readmodel, readmodel_applied, readmodel_held, bench_account"
            await connection.execute(text(f"TRUNCATE {tables}, bench_account_shadow"))
            await connection.execute(text("CHECKPOINT"))


async def run(report: Report, rounds: int) -> None:
    """Measure both, with each driver."""
    report.packages = ("psycopg", "asyncpg", "sqlalchemy")
    with postgres_server() as postgres:
        report.servers |= {"PostgreSQL": postgres.version}
        for driver in DRIVERS:
            if report.wants(driver):
                await _measure(report, rounds, driver, postgres)


async def _measure(report: Report, rounds: int, driver: str, postgres: Postgres) -> None:
    url = await asyncio.to_thread(create_template, postgres, f"readmodel_{driver}")
    engine = make_engine(url.replace("postgresql:", f"postgresql+{driver}:"))
    events = report.options.size or EVENTS
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
        await connection.execute(_FILL, {"events": events, "accounts": ACCOUNTS})
    side = Side(engine, events)
    few = min(ONE_BY_ONE, events)
    found = await alternate(
        {
            "batches": lambda: side.follow(BATCH, events),
            "one by one": lambda: side.follow(1, few),
            "rebuild": side.rebuild,
            "bare SQL": side.fold,
        },
        rounds=rounds,
        blocks=BLOCKS,
        before_round=side.empty,
    )
    await engine.dispose()
    rates = {name: [1 / seconds for seconds in values] for name, values in found.items()}
    ours, theirs = rates["batches"], rates["one by one"]
    name, unit = f"events applied, batches of {BATCH:,}, {driver}", "events/s"
    report.add(Row(name, unit, ours, "one transaction each", theirs, at_least(10)))
    name = f"events of a rebuild, {driver}"
    report.add(Row(name, unit, rates["rebuild"], "INSERT … SELECT", rates["bare SQL"]))
