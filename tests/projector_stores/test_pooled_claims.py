"""Claims of several statements in one transaction: through PgBouncer, after a sweep, of new shards."""

import asyncio
from typing import Any

import psycopg
import pytest

from pillarbox.projector.postgres.claims import Claims
from pillarbox.projector.postgres.store import PostgresStore
from pillarbox.projector.store import StoreUnavailable
from pillarbox.servers import PgBouncer
from tests.projector_stores.rig import Rig, numbers
from tests.support.waiting import until


@pytest.mark.parametrize("rig", ["postgres+psycopg"], indirect=True)
async def test_what_was_read_and_could_not_be_claimed_is_read_again(
    rig: Rig, pgbouncer: PgBouncer, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.dsn = pgbouncer.url_of(rig.database.url.database or "")
    await rig.record(1)
    owner = await rig.owner()
    assert numbers(await owner.claim()) == [1]
    await rig.record(2)

    async def cut(*_: Any) -> bool:
        raise psycopg.OperationalError("the server closed the connection")

    with monkeypatch.context() as patched:
        patched.setattr(Claims, "_claim", cut)
        patched.setattr(Claims, "_claims_at_once", lambda *_: False)
        with pytest.raises(StoreUnavailable):
            await owner.claim(in_hand={1})
    await rig.record(3)

    assert numbers(await owner.claim(in_hand={1})) == [2, 3]


@pytest.mark.parametrize("rig", ["postgres+psycopg"], indirect=True)
@pytest.mark.parametrize("how", ["of new shards", "after a sweep", "through a pooler"])
async def test_a_claim_may_not_rest_in_its_transaction_for_longer_than_the_lease(
    rig: Rig, pgbouncer: PgBouncer, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    if how == "through a pooler":
        rig.dsn = pgbouncer.url_of(rig.database.url.database or "")
    owner = await rig.owner(lease=7.0)
    assert isinstance(owner.store, PostgresStore)
    if how != "of new shards":
        await owner.claim()
    owner.store._claims._sweeps = how == "after a sweep"
    read, limits = Claims._read, []

    async def noting(claims: Claims, connection: Any, *rest: Any, **more: Any) -> Any:
        found = await connection.execute("SHOW idle_in_transaction_session_timeout")
        limits.append((await found.fetchone())[0])
        return await read(claims, connection, *rest, **more)

    monkeypatch.setattr(Claims, "_read", noting)
    await rig.record(1)

    assert numbers(await owner.claim()) == [1]
    assert limits[0] == "7s"


@pytest.mark.parametrize("rig", ["postgres+psycopg"], indirect=True)
async def test_an_owner_that_freezes_with_marked_rows_keeps_nobody_from_claiming_them(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.record(1, 2, status="PUBLISHING")
    owner = await rig.owner(claim="row", lease=4.0)
    assert isinstance(owner.store, PostgresStore)
    owner.store._reading._limit = 60.0  # a process that is stopped gives up nothing
    marked, thawed = asyncio.Event(), asyncio.Event()

    async def freeze(*_: object) -> None:
        marked.set()
        await thawed.wait()

    with monkeypatch.context() as patched:
        patched.setattr(Claims, "_pairs", freeze)
        frozen = asyncio.ensure_future(owner.claim())
        async with asyncio.timeout(20):
            await marked.wait()
    await rig.expire(owner)
    heir = await rig.owner(claim="row", lease=4.0)
    found = list[int]()

    async def claims_them() -> bool:
        try:
            await heir.keep()
            found.extend(numbers(await heir.claim()))
        except StoreUnavailable:
            await rig.expire(owner)
        return found == [1, 2]

    await until(claims_them, "the server ends the frozen session", 20)
    thawed.set()
    with pytest.raises((StoreUnavailable, TypeError)):
        await frozen
