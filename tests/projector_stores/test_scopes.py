"""Who may work beside whom: members that serve some of the same tenants, whatever the store."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from sqlalchemy import create_engine, delete, text, update
from sqlalchemy.pool import NullPool

from pillarbox.database import async_url, sync_url
from pillarbox.errors import ScopeOverlaps
from pillarbox.projector.postgres.connecting import connect_to
from pillarbox.projector.postgres.statements import Statements
from pillarbox.projector.scope import ALL, Scope
from pillarbox.schema import apply
from pillarbox.schema.tables import outbox_lease, outbox_member
from pillarbox.servers import PgBouncer, Postgres
from tests.projector_stores.rig import Rig
from tests.support.database import opened
from tests.support.waiting import until


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ALL, Scope(tenants=("acme",))),
        (Scope(tenants=("acme", "brown")), Scope(tenants=("acme",))),
        (Scope(bucket=0, buckets=2), Scope(bucket=0, buckets=4)),
        (Scope(bucket=0, buckets=2), ALL),
    ],
)
async def test_a_scope_that_overlaps_a_living_one_is_refused(
    rig: Rig, one: Scope, other: Scope
) -> None:
    await rig.join(one)

    with pytest.raises(ScopeOverlaps):
        await rig.join(other)


async def test_of_two_overlapping_scopes_that_join_together_one_is_refused(rig: Rig) -> None:
    joining = [rig.join(scope) for scope in (ALL, Scope(tenants=("acme",)))]

    results = await asyncio.gather(*joining, return_exceptions=True)

    assert sum(isinstance(result, ScopeOverlaps) for result in results) == 1
    assert len(await rig.all(outbox_member)) == 1


@pytest.mark.parametrize("pooled", [False, True], ids=["directly", "through a pooler"])
async def test_of_two_that_wait_to_join_one_is_refused_whatever_the_databases_isolation(
    postgres18: Postgres, pgbouncer: PgBouncer, pooled: bool
) -> None:
    """In REPEATABLE READ each looked at what was there before it had waited for the other."""
    async with repeatable_read(postgres18) as rig:
        rig.dsn = pgbouncer.url_of(rig.database.name) if pooled else None
        async with rig.database.engine.connect() as third, asyncio.TaskGroup() as group:
            await third.execute(text("SELECT pg_advisory_xact_lock(7017483652)"))
            joining = [
                group.create_task(joined(rig, scope)) for scope in (ALL, Scope(tenants=("acme",)))
            ]
            await until(lambda: both_wait(rig), "both wait for the third")
            await third.rollback()

        assert sorted(task.result() for task in joining) == [False, True]
        assert len(await rig.all(outbox_member)) == 1


@asynccontextmanager
async def repeatable_read(postgres: Postgres) -> AsyncIterator[Rig]:
    """Make a database of its own: a pooler's connections to one keep the default they began with."""
    name = f"isolation_{uuid4().hex}"
    address = postgres.create_database(name)
    engine = create_engine(sync_url(address), poolclass=NullPool)
    apply(engine)
    with engine.begin() as connection:
        isolation = "default_transaction_isolation = 'repeatable read'"
        connection.exec_driver_sql(f"ALTER DATABASE {name} SET {isolation}")
    engine.dispose()
    try:
        async with (
            opened(
                name, async_url(address.replace("postgresql:", "postgresql+psycopg:"))
            ) as database,
            AsyncExitStack() as stack,
        ):
            assert await database.scalar("SHOW transaction_isolation") == "repeatable read"
            yield Rig("postgres+psycopg", database, stack)
    finally:
        postgres.drop_database(name)


async def joined(rig: Rig, scope: Scope) -> bool:
    try:
        await rig.join(scope)
    except ScopeOverlaps:
        return False
    return True


async def both_wait(rig: Rig) -> bool:
    waiting = text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND wait_event = 'advisory'"
    )
    async with rig.database.engine.connect() as connection:
        return bool(await connection.scalar(waiting) == 2)


async def test_scopes_that_are_equal_or_apart_live_together(rig: Rig) -> None:
    await rig.join(Scope(tenants=("acme",)))
    await rig.join(Scope(tenants=("acme",)))
    await rig.join(Scope(tenants=("brown",)))

    assert len(await rig.all(outbox_member)) == 3


async def test_the_scope_of_a_dead_member_is_in_nobodys_way(rig: Rig) -> None:
    dead = await rig.join(Scope(tenants=("acme",)))
    await rig.expire(dead)

    owner = await rig.owner()

    assert len(owner.epochs) == 64


async def test_a_member_that_was_away_does_not_come_back_beside_one_that_overlaps(rig: Rig) -> None:
    away = await rig.owner()
    await rig.expire(away)
    joined = await rig.owner(Scope(tenants=("acme",)))

    with pytest.raises(ScopeOverlaps, match="tenants:acme"):
        await away.keep()

    await joined.keep()
    assert len(joined.epochs) == 64
    held = [row for row in await rig.all(outbox_lease) if row["expires_at"] > datetime.now(UTC)]
    assert {row["scope"] for row in held} == {"tenants:acme"}


async def test_a_member_whose_leases_hold_is_not_taken_for_dead_by_one_with_a_shorter_lease(
    rig: Rig,
) -> None:
    slow = await rig.owner(lease=60.0)
    await rig.run(update(outbox_member).values(seen_at=datetime.now(UTC) - timedelta(seconds=20)))

    with pytest.raises(ScopeOverlaps, match="serves all"):
        await rig.join(Scope(tenants=("acme",)), lease=1.0)

    await slow.keep()
    assert len(slow.epochs) == 64


async def test_a_member_whose_leases_hold_is_not_tidied_away(rig: Rig) -> None:
    slow = await rig.owner(Scope(tenants=("acme",)), lease=60.0)
    await rig.run(update(outbox_member).values(seen_at=datetime.now(UTC) - timedelta(seconds=20)))

    await rig.owner(Scope(tenants=("brown",)), lease=1.0)

    assert slow.member_id in {row["member_id"] for row in await rig.all(outbox_member)}


async def test_of_two_overlapping_members_that_missed_each_other_one_stops_when_it_renews(
    rig: Rig,
) -> None:
    """A renewal that began before the lease expired may be committed after another has joined."""
    first = await rig.owner()
    held = await rig.all(outbox_lease)
    await rig.expire(first)
    second = await rig.owner(Scope(tenants=("acme",)))
    await rig.run(
        update(outbox_lease)
        .where(outbox_lease.c.scope == "all")
        .values(expires_at=held[0]["expires_at"])
    )

    with pytest.raises(ScopeOverlaps, match="tenants:acme"):
        await first.keep()

    await first.store.leave()
    await second.keep()
    assert len(second.epochs) == 64


@pytest.mark.parametrize("rig", ["postgres+psycopg"], indirect=True)
async def test_one_that_freezes_while_it_joins_keeps_no_other_from_joining(rig: Rig) -> None:
    statements = Statements(schema=None, shards=64, scope=ALL, by_row=False)
    frozen = await connect_to(rig.database.url)()
    await frozen.execute("BEGIN")
    await frozen.execute(statements["lock_joining"], {"idle": "100"})

    await rig.join(lease=15.0)

    assert len(await rig.all(outbox_member)) == 1
    await frozen.close()


async def test_a_member_without_leases_shows_signs_of_life(rig: Rig) -> None:
    await rig.owner()
    second = await rig.owner()
    own = outbox_member.c.member_id == second.member_id
    before = datetime.now(UTC) - timedelta(seconds=5)
    await rig.run(update(outbox_member).where(own).values(seen_at=before))

    await second.keep()

    seen = {row["member_id"]: row["seen_at"] for row in await rig.all(outbox_member)}
    assert seen[second.member_id] > before


async def test_a_member_that_was_tidied_away_comes_back(rig: Rig) -> None:
    owner = await rig.owner()
    await rig.run(delete(outbox_member))

    await owner.keep()

    assert [row["member_id"] for row in await rig.all(outbox_member)] == [owner.member_id]
    assert len(owner.epochs) == 64
