"""One outbox with a store of either kind: rows to begin with, members, and what became of the rows."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Connection, Table, delete, insert, select, update

from pillarbox.event.shard import place_of, shard_of
from pillarbox.projector.config import OutboxProjectorConfig
from pillarbox.projector.postgres.connecting import connect_to
from pillarbox.projector.postgres.store import PostgresStore
from pillarbox.projector.scope import ALL, Scope
from pillarbox.projector.session.store import SessionStore
from pillarbox.projector.store import (
    Claimed,
    ClaimRequest,
    Failure,
    Member,
    OutboxEvent,
    Settled,
    Settlement,
    Store,
)
from pillarbox.schema.tables import (
    DEFAULT_SHARDS,
    outbox,
    outbox_blocked_key,
    outbox_claim,
    outbox_claim_end,
    outbox_control,
    outbox_lease,
    outbox_member,
)
from tests.schema.rows import new_id
from tests.support.database import Database, Databases, opened

POOLED: Final = "postgres+pgbouncer"
POSTGRES: Final = ("postgres+psycopg", POOLED, "session+asyncpg", "session+psycopg")
STORES: Final = (*POSTGRES, "session+sqlite")
_BACKENDS: Final = {
    "postgres+psycopg": "postgres18+psycopg",
    POOLED: "postgres18+psycopg",
    "session+asyncpg": "postgres18+asyncpg",
    "session+psycopg": "postgres18+psycopg",
    "session+sqlite": "sqlite+aiosqlite",
}
_TABLES: Final = (
    outbox,
    outbox_blocked_key,
    outbox_claim,
    outbox_claim_end,
    outbox_control,
    outbox_lease,
    outbox_member,
)
LONG_AGO: Final = timedelta(hours=1)

on_postgres: Final = pytest.mark.parametrize("rig", POSTGRES, indirect=True)


def shard(key: str, tenant_id: str = "default") -> int:
    """Return the shard of a key."""
    return shard_of(place_of(tenant_id, key).shard_hash, DEFAULT_SHARDS)


@dataclass(slots=True)
class Owner:
    """A member with its store and the leases that it holds."""

    store: Store
    member_id: UUID
    epochs: dict[int, int] = field(default_factory=dict)

    async def keep(self, *active: UUID) -> None:
        self.epochs = dict((await self.store.keep(active)).epochs)

    async def claim(
        self,
        limit: int = 100,
        *,
        in_hand: AbstractSet[int] = frozenset(),
        passed_over: Collection[str] = (),
    ) -> list[OutboxEvent]:
        """Claim until something comes or nothing is left: a store may take several steps."""
        for _ in range(50):
            claimed = await self.claim_once(limit, in_hand=in_hand, passed_over=passed_over)
            if claimed.events or not claimed.more:
                return list(claimed.events)
        raise AssertionError("claims tell of more and bring nothing")

    async def claim_once(
        self,
        limit: int = 100,
        *,
        in_hand: AbstractSet[int] = frozenset(),
        passed_over: Collection[str] = (),
        claim_id: UUID | None = None,
        news: bool = False,
    ) -> Claimed:
        return await self.store.claim(
            ClaimRequest(claim_id or uuid4(), self.epochs, limit, in_hand, passed_over, news)
        )

    async def settle(self, **parts: Any) -> Settled:
        return await self.store.settle(Settlement(**parts), self.epochs)

    async def fail(self, event: OutboxEvent, delay: float | None = 60.0) -> Settled:
        """Settle an event as refused; without a delay it is DEAD."""
        why = Failure("too-large", "1 MB", delay)
        return await self.settle(**{"dead" if delay is None else "failed": [(event, why)]})


@dataclass(slots=True)
class Rig:
    """A database and the kind of store to try on it."""

    kind: str
    database: Database
    stack: AsyncExitStack
    dsn: str | None = None
    """Another way to the database, for stores with connections of their own."""

    async def run(self, *statements: Any) -> None:
        async with self.database.engine.begin() as connection:
            for statement in statements:
                await connection.execute(statement)

    async def record(self, *seqs: int, **columns: Any) -> None:
        """Record events with these numbers in one transaction, by default of `order-1`."""
        async with self.database.engine.begin() as connection:
            await connection.run_sync(record_rows, seqs, columns)

    async def join(self, scope: Scope = ALL, **settings: Any) -> Owner:
        """Become a member, without leases as yet."""
        member_id = uuid4()
        store = self.open(scope, member_id, OutboxProjectorConfig(**settings))
        self.stack.push_async_callback(store.close)
        await store.join(Member(member_id, "shop", "host", 1, "0"))
        return Owner(store, member_id)

    async def owner(self, scope: Scope = ALL, **settings: Any) -> Owner:
        """Become a member with its share of the leases."""
        member = await self.join(scope, **settings)
        await member.keep()
        return member

    def open(self, scope: Scope, member_id: UUID, config: OutboxProjectorConfig) -> Store:
        options: Mapping[str, Any] = {
            "config": config,
            "scope": scope,
            "member_id": member_id,
            "source": "shop",
            "schema": None,
            "shards": DEFAULT_SHARDS,
        }
        if self.kind.startswith("postgres"):
            return PostgresStore(connect_to(self.dsn or self.database.url), **options)
        return SessionStore(self.database.sessions, **options)

    async def expire(self, member: Owner) -> None:
        """Let time pass for a member that shows no signs of life."""
        past = datetime.now(UTC) - LONG_AGO
        owned = outbox_lease.c.member_id == member.member_id
        seen = outbox_member.c.member_id == member.member_id
        await self.run(
            update(outbox_lease).where(owned).values(expires_at=past),
            update(outbox_member).where(seen).values(seen_at=past),
        )

    async def make_due(self) -> None:
        """Let the time come for everything that waits for a time."""
        past = datetime.now(UTC) - LONG_AGO
        later = outbox.c.set_aside == "later"
        await self.run(
            update(outbox).where(outbox.c.status == "FAILED").values(retry_after=past),
            update(outbox).where(later).values(deliver_at=past),
        )

    async def all(self, table: Table) -> Sequence[Mapping[str, Any]]:
        async with self.database.engine.connect() as connection:
            found = await connection.execute(select(table))
            return [dict(row) for row in found.mappings()]

    async def row(self, seq: int) -> Mapping[str, Any]:
        (found,) = [row for row in await self.all(outbox) if row["seq"] == seq]
        return found

    async def states(self) -> dict[int, str]:
        """Return the status of each event, or where it was set aside."""
        rows = sorted(await self.all(outbox), key=lambda row: row["seq"])
        return {row["seq"]: row["set_aside"] or row["status"] for row in rows}

    async def blocked(self) -> dict[str, int]:
        """Return up to which number events of blocked keys may pass."""
        return {row["key"]: row["seq"] for row in await self.all(outbox_blocked_key)}

    async def clear(self) -> None:
        await self.run(*(delete(table) for table in _TABLES))


def record_rows(connection: Connection, seqs: Sequence[int], columns: Mapping[str, Any]) -> None:
    """Insert events as the outbox would."""
    now = datetime.now(UTC)
    connection.execute(
        insert(outbox),
        [
            {
                "id": new_id(now),
                "seq": seq,
                "occurred_at": now,
                "tenant_id": "default",
                "key": "order-1",
                "event_type": "OrderPlaced",
                "topic": "orders",
                "payload": {"n": seq},
                **columns,
                "shard_hash": place_of(
                    columns.get("tenant_id", "default"), columns.get("key", "order-1")
                ).shard_hash,
            }
            for seq in seqs
        ],
    )


async def claimed(rig: Rig, *seqs: int, **settings: Any) -> tuple[Owner, list[OutboxEvent]]:
    """Record events of one key and claim them."""
    await rig.record(*seqs)
    owner = await rig.owner(**settings)
    return owner, await owner.claim()


def numbers(events: Sequence[OutboxEvent]) -> list[int]:
    return [event.seq for event in events]


@asynccontextmanager
async def rig_of(name: str, databases: Databases, folder: Path) -> AsyncIterator[Rig]:
    backend = _BACKENDS[name]
    async with (
        opened(backend, databases.url(backend, folder)) as database,
        AsyncExitStack() as stack,
    ):
        yield Rig(name, database, stack)
