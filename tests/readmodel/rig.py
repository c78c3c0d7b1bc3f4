"""Accounts as a read model: events of the tests, their tables, and a log on a real database."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import String, Table, select, text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from pillarbox import DomainEvent, SqlAlchemyOutbox
from pillarbox.outbox.new_event import NewEvent
from pillarbox.readmodel.changes import Change, Delete, Increment, Update, Upsert
from pillarbox.readmodel.config import ReadModelConfig
from pillarbox.readmodel.definition import ReadModel, on
from pillarbox.readmodel.observer import Observer
from pillarbox.readmodel.parts import Parts
from pillarbox.readmodel.runner import LogRunner
from pillarbox.schema.tables import readmodel_held
from tests.support.database import Database

MODELS = (
    "account", "account_shadow", "account_total", "account_total_shadow", "credit", "credit_shadow",
)  # fmt: skip
TABLES = (
    "outbox", "readmodel", "readmodel_applied", "readmodel_held", "readmodel_member",
    "pillarbox_audit", "inbox", "inbox_attempt", "inbox_parked", "inbox_task", "consumer_tenant",
    "outbox_control",
)  # fmt: skip


class Base(DeclarativeBase):
    pass


class Account(Base):
    __tablename__ = "account"
    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    account_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    owner: Mapped[str | None] = mapped_column(String(64))
    status: Mapped[str | None] = mapped_column(String(16))
    deposits: Mapped[int] = mapped_column(server_default="0")
    cents: Mapped[int] = mapped_column(server_default="0")


class AccountTotal(Base):
    __tablename__ = "account_total"
    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    owner: Mapped[str] = mapped_column(String(64), primary_key=True)
    accounts: Mapped[int] = mapped_column(server_default="0")


class Credit(Base):
    __tablename__ = "credit"
    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    account_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    owner: Mapped[str | None] = mapped_column(String(64))
    cents: Mapped[int] = mapped_column(server_default="100")
    deposits: Mapped[int] = mapped_column(default=7)


class Opened(DomainEvent):
    aggregate_type = "account"
    account_id: str
    owner: str


class Deposited(DomainEvent):
    aggregate_type = "account"
    account_id: str
    cents: int


class Renamed(DomainEvent):
    aggregate_type = "account"
    account_id: str
    owner: str


class Closed(DomainEvent):
    aggregate_type = "account"
    account_id: str


class Poison(Exception):
    pass


class Accounts(ReadModel, name="accounts", table=Account):
    """A row for each account, written by its own events alone."""

    broken = False

    @on(Opened)
    def opened(self, event: Opened) -> Change:
        if self.broken:
            raise Poison(event.account_id)
        return Upsert(event.account_id, owner=event.owner, status="OPEN", deposits=0, cents=0)

    @on(Deposited)
    def deposited(self, event: Deposited) -> Change:
        return Increment(event.account_id, deposits=1, cents=event.cents)

    @on(Renamed)
    def renamed(self, event: Renamed) -> Change:
        return Update(event.account_id, owner=event.owner)

    @on(Closed)
    def closed(self, event: Closed) -> Change:
        return Delete(event.account_id)


class Owners(ReadModel, name="owners", table=AccountTotal):
    """A row for each owner, fed by many accounts."""

    @on(Opened)
    def opened(self, event: Opened) -> Change:
        return Increment(event.owner, accounts=1)


class Credits(ReadModel, name="credits", table=Credit):
    """A row for each account, whose numbers do not begin with nothing."""

    @on(Opened)
    def opened(self, event: Opened) -> Change:
        return Upsert(event.account_id, owner=event.owner)

    @on(Deposited)
    def deposited(self, event: Deposited) -> Change:
        return Increment(event.account_id, cents=event.cents)

    @on(Renamed)
    def renamed(self, event: Renamed) -> Change:
        return Increment(event.account_id, deposits=1)

    @on(Closed)
    def closed(self, event: Closed) -> Change:
        return Delete(event.account_id)


@dataclass(slots=True)
class Rig:
    """A database with a log, and ways to write to it and to look at the models."""

    database: Database
    versions: dict[tuple[str, str], int] = field(default_factory=dict)

    async def clear(self) -> None:
        await self.prepare()
        async with self.database.engine.begin() as connection:
            for table in TABLES:
                await connection.execute(text(f"DELETE FROM {table}"))

    async def prepare(self) -> None:
        """Make the models' tables, empty, and have the log begin with number 1.

        All other tables are empty in every test.
        """
        async with self.database.engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
            for table in MODELS:
                await connection.execute(text(f"DELETE FROM {table}"))
            await connection.execute(
                text(
                    "ALTER SEQUENCE outbox_seq RESTART"
                    if self.database.is_postgres
                    else "UPDATE outbox_settings SET last_seq = 0"
                )
            )

    def parts(self, *, observer: Observer | None = None, **options: Any) -> Parts:
        config = ReadModelConfig(**{"look_every": 0.02, "retry_delay": 0.001, **options})
        return Parts(self.database.sessions, config, observer=observer or Observer())

    def runner(self, model: ReadModel | None = None, **options: Any) -> LogRunner:
        return LogRunner(model or Accounts(), self.parts(**options))

    def numbered(self, event: DomainEvent, tenant_id: str = "default") -> NewEvent:
        """Give an event the next version of its account."""
        account = event.account_id  # type: ignore[attr-defined]  # every event here has it
        version = self.versions[tenant_id, account] = self.versions.get((tenant_id, account), 0) + 1
        return NewEvent(
            event=event, key=account, aggregate_type="account", aggregate_id=account,
            aggregate_version=version, event_number=1,
        )  # fmt: skip

    async def add(
        self, session: AsyncSession, *events: DomainEvent, tenant_id: str = "default"
    ) -> list[str]:
        outbox = SqlAlchemyOutbox(session, tenant_id)
        ids = await outbox.add_many([self.numbered(event, tenant_id) for event in events])
        return [str(event_id) for event_id in ids]

    async def record(self, *events: DomainEvent, tenant_id: str = "default") -> list[str]:
        """Commit events, in one transaction."""
        async with self.database.sessions() as session:
            ids = await self.add(session, *events, tenant_id=tenant_id)
            await session.commit()
        return ids

    @asynccontextmanager
    async def slow_transaction(self, *events: DomainEvent) -> AsyncIterator[AsyncSession]:
        """Hold a transaction open that has written events; the test commits it."""
        async with self.database.sessions() as session:
            await self.add(session, *events)
            await SqlAlchemyOutbox(session).flush()
            yield session

    async def rows(self, table: Table | None = None) -> dict[tuple[str, str], Mapping[str, Any]]:
        """Return a model's rows by tenant and id."""
        found = Account.__table__ if table is None else table
        assert isinstance(found, Table)
        async with self.database.sessions() as session:
            rows = (await session.execute(select(found))).mappings().all()
        return {
            (row["tenant_id"], row[found.primary_key.columns[1].name]): dict(row) for row in rows
        }

    async def cents(self) -> dict[str, int]:
        return {key[1]: row["cents"] for key, row in (await self.rows()).items()}

    async def position(self, name: str = "accounts") -> tuple[int, Any]:
        """Return where a model stands; one that has not begun stands before the first row."""
        async with self.database.engine.connect() as connection:
            row = (
                await connection.execute(
                    text(
                        "SELECT position, gaps FROM readmodel WHERE name = :name AND state = 'live'"
                    ),
                    {"name": name},
                )
            ).one_or_none()
        return (0, None) if row is None else (row[0], row[1])

    async def held(self) -> Mapping[str, Any]:
        """Return the one key that is held."""
        async with self.database.engine.connect() as connection:
            return dict((await connection.execute(readmodel_held.select())).mappings().one())

    async def record_raw(self, event_type: str, payload: Mapping[str, Any], key: str) -> None:
        async with self.database.sessions() as session:
            outbox = SqlAlchemyOutbox(session)
            await outbox.add(event_type=event_type, topic="t", payload=payload, key=key)
            await session.commit()

    async def count(self, table: str) -> int:
        found: int = await self.database.scalar(f"SELECT count(*) FROM {table}")
        return found


def ids(rows: Mapping[tuple[str, str], Any]) -> Sequence[str]:
    return sorted(key[1] for key in rows)
