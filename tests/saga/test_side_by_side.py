"""Two transactions for one saga: the second waits, and what was changed meanwhile is not overwritten."""

import asyncio
from datetime import timedelta

import pytest
from sqlalchemy import text

from pillarbox import Context, Saga, Why
from pillarbox.saga.machine import Part, Place, State, Verdict, answered
from pillarbox.saga.store import RevisionLost, Store
from tests.saga.shop import OrderCreated, Shop, quiet_bus
from tests.support.database import Database, on, on_postgres
from tests.support.waiting import until

# A read waits for another transaction only if it locks what it reads.
WAITS_TO_READ = (
    "SELECT count(*) FROM pg_stat_activity "
    "WHERE :other = ANY(pg_blocking_pids(pid)) AND query LIKE 'SELECT%FROM saga%'"
)


@on("postgres18+asyncpg", "postgres18+psycopg", "sqlite+aiosqlite")
async def test_a_saga_that_was_changed_elsewhere_since_it_was_read_is_not_overwritten(
    shop: Shop,
) -> None:
    await shop.order("o-1")
    await shop.saga_works()
    store, saga_id = Store("place-order"), (await shop.row()).saga_id
    async with shop.database.sessions() as reading:
        held = await store.find(reading, "default", saga_id)
    assert held is not None
    async with shop.database.engine.begin() as elsewhere:
        await elsewhere.execute(text("UPDATE saga SET tries = 7, revision = revision + 1"))
    changed = await shop.row()
    plan = shop.box.sagas.versions["place-order"][1].plan
    held.progress = answered(plan, held.progress, Place(0, Part.DO), good=True, sent=1).progress

    with pytest.raises(RevisionLost, match=f"{saga_id} is not at revision {changed.revision - 1}"):
        async with shop.database.sessions.begin() as session:
            await store.save(session, held, timedelta(minutes=5))

    assert await shop.row() == changed
    assert await shop.outcomes() == {("reserve", "do"): None}


class Held:
    """A timer's transaction that stays open, at the end of its saga, until it is let go."""

    def __init__(self, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open, self.let_go = asyncio.Event(), asyncio.Event()
        self.server_process = 0
        kind = shop.box.sagas.versions["place-order"][1].kind
        ended = kind.compensated

        async def compensated(saga: Saga, start: OrderCreated, ctx: Context, why: Why) -> None:
            await ended(saga, start, ctx, why)
            found = await ctx.session.scalar(text("SELECT pg_backend_pid()"))
            self.server_process = found or 0
            self.open.set()
            await self.let_go.wait()

        monkeypatch.setattr(kind, "compensated", compensated)


@on_postgres
async def test_a_reply_waits_for_the_timer_that_has_its_saga_and_the_step_has_one_outcome(
    database: Database, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shop.order("o-1")
    await shop.settle("saga-place-order")
    await shop.settle("inventory")  # the reply is on the bus
    await shop.time_passes()
    other = Shop(database, bus=quiet_bus())  # another process, which no message reaches
    timer = Held(other, monkeypatch)

    async def waits_to_read() -> bool:
        return bool(await database.scalar(WAITS_TO_READ, {"other": timer.server_process}))

    async with asyncio.TaskGroup() as group:
        group.create_task(other.saga.drain())
        await timer.open.wait()
        group.create_task(shop.saga.drain())
        await until(waits_to_read, "the reply waits for the timer's transaction")
        meanwhile = (await shop.row()).state, await shop.strays(), list(shop.heard.verdicts)
        timer.let_go.set()
    await shop.settle()

    assert meanwhile == ("RUNNING", [], [])
    assert (other.heard.stands, shop.heard.stands) == ([State.COMPENSATED], [])
    assert shop.heard.verdicts == [Verdict.ENDED]
    assert await shop.strays() == ["ended"]
    assert await shop.outcomes() == {("reserve", "do"): "timed-out", ("reserve", "undo"): "sent"}
    assert shop.handled == [("reserve", "o-1"), ("release", "o-1")]
    assert await shop.statuses() == {"o-1": "REJECTED"}
