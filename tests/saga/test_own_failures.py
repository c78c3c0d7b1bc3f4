"""What the end of a saga brings upon itself is its own failure, and holds up no other saga."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import text, update
from sqlalchemy.exc import OperationalError

from pillarbox import Context, Saga, Why
from pillarbox.errors import UnitOfWorkError
from pillarbox.schema.tables import saga
from pillarbox.schema.types import DatabaseTime
from tests.saga.shop import OrderCreated, Shop
from tests.support.database import on, on_postgres
from tests.support.no_room import run_out_of_room

on_three = on("postgres18+asyncpg", "postgres18+psycopg", "sqlite+aiosqlite")

End = Callable[[Context], Awaitable[None]]


@pytest.fixture
def ends(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> dict[str, End]:
    """What follows from the end of these orders' sagas, before their status is set."""
    kind = shop.box.sagas.versions["place-order"][1].kind
    ended, found = kind.compensated, dict[str, End]()

    async def compensated(self: Saga, start: OrderCreated, ctx: Context, why: Why) -> None:
        if start.order_id in found:
            await found[start.order_id](ctx)
        await ended(self, start, ctx, why)

    monkeypatch.setattr(kind, "compensated", compensated)
    return found


async def go_back(shop: Shop, *orders: str, times: int = 3) -> None:
    """Let the sagas of some orders time out until they have come to their end, or failed at it."""
    await shop.order(*orders)
    await shop.saga_works()
    for _ in range(times):
        await shop.time_passes()
        await shop.saga_works()


def _raised(**told: str) -> End:
    """Fail as a driver of another database does."""
    original: Any = SimpleNamespace(**told)

    async def end(ctx: Context) -> None:
        del ctx
        raise OperationalError("SELECT 1", {}, original)

    return end


AWAY_ELSEWHERE = {
    "too many connections": _raised(sqlstate="53300"),
    "read-only": _raised(sqlstate="25006"),
    "a full disk": _raised(sqlstate="53100"),
    "a conflict": _raised(sqlstate="40001"),
    "a deadlock": _raised(sqlstate="40P01"),
    "a locked file": _raised(sqlite_errorname="SQLITE_BUSY"),
}


@on_three
@pytest.mark.parametrize("why", AWAY_ELSEWHERE)
async def test_an_end_for_which_another_database_is_away_holds_up_no_other_saga(
    shop: Shop, ends: dict[str, End], why: str
) -> None:
    """It passed for the saga's own database by its code: all timers of the name stood still."""
    ends["o-1"] = AWAY_ELSEWHERE[why]

    async with asyncio.timeout(60):
        await go_back(shop, "o-1", "o-2")

    assert await shop.statuses() == {"o-1": "PENDING", "o-2": "REJECTED"}
    await _is_stuck_with(shop, "OperationalError")


@on_postgres
async def test_an_end_that_does_not_wait_for_a_lock_holds_up_no_other_saga(
    shop: Shop, ends: dict[str, End]
) -> None:
    async def end(ctx: Context) -> None:
        await ctx.session.execute(text("SELECT 1 FROM other FOR UPDATE NOWAIT"))

    ends["o-1"] = end
    async with shop.database.engine.begin() as connection:
        await connection.execute(text("CREATE TABLE other AS SELECT 1 AS n"))
    try:
        async with shop.database.engine.begin() as connection, asyncio.timeout(60):
            await connection.execute(text("SELECT 1 FROM other FOR UPDATE"))
            await go_back(shop, "o-1", "o-2")
    finally:
        async with shop.database.engine.begin() as connection:
            await connection.execute(text("DROP TABLE other"))

    assert await shop.statuses() == {"o-1": "PENDING", "o-2": "REJECTED"}
    await _is_stuck_with(shop, "OperationalError", "DBAPIError")


async def _due_in_order(shop: Shop, *orders: str) -> None:
    """Make the sagas of orders due, one after another."""
    async with shop.database.engine.begin() as connection:
        for row in await shop.rows():
            since = timedelta(hours=1, seconds=-orders.index(row.start["key"]))
            mine = saga.c.saga_id == row.saga_id
            await connection.execute(update(saga).where(mine).values(due_at=DatabaseTime(-since)))


@on("sqlite+aiosqlite")
async def test_an_end_for_which_sqlite_undoes_the_transaction_of_its_batch_holds_up_no_other_saga(
    shop: Shop, ends: dict[str, End]
) -> None:
    """What was written about it then stood alone, and the end of the batch ended the consumer."""

    async def end(ctx: Context) -> None:
        await run_out_of_room(ctx.session)

    ends["o-1"] = ends["o-3"] = end

    async with asyncio.timeout(60):
        await go_back(shop, "o-1", "o-2", "o-3")

    assert await shop.statuses() == {"o-1": "PENDING", "o-2": "REJECTED", "o-3": "PENDING"}
    stuck = [row for row in await shop.rows() if row.state != "COMPENSATED"]
    assert [(row.state, row.failures) for row in stuck] == [("STUCK", 1)] * 2


@on_three
async def test_an_end_before_others_that_give_up_their_statements_runs_again_once(
    shop: Shop, ends: dict[str, End]
) -> None:
    """It ran again for each of them, since all of a batch was undone each time and taken again."""
    runs = list[str]()

    def counted(order_id: str) -> End:
        async def end(ctx: Context) -> None:
            runs.append(order_id)
            if order_id in bad:
                await (await ctx.session.connection()).invalidate()

        return end

    bad = [f"o-{n}" for n in range(2, 6)]
    orders = ["o-1", *bad, "o-6"]
    ends.update({order_id: counted(order_id) for order_id in orders})
    await go_back(shop, *orders, times=0)
    await _due_in_order(shop, *orders)

    await shop.saga_works()

    assert (runs.count("o-1"), runs.count("o-6")) == (2, 1)
    assert {"o-1": "REJECTED", "o-6": "REJECTED"}.items() <= (await shop.statuses()).items()


@on_three
async def test_a_consumer_that_is_stopped_lets_no_more_ends_give_up_their_statements(
    shop: Shop, ends: dict[str, End]
) -> None:
    """All of a batch were waited for, one after the other, however many and slow they were."""
    runs = list[str]()

    async def end(ctx: Context) -> None:
        runs.append("run")
        shop.saga.stop()
        await (await ctx.session.connection()).invalidate()

    orders = [f"o-{n}" for n in range(1, 6)]
    ends.update(dict.fromkeys(orders, end))
    await go_back(shop, *orders, times=0)
    await shop.time_passes()

    async with asyncio.timeout(60):
        await shop.saga.run_forever()

    assert runs == ["run"]


async def _is_stuck_with(shop: Shop, *classes: str) -> None:
    (row,) = [row for row in await shop.rows() if row.state != "COMPENSATED"]
    assert row.state == "STUCK"
    assert row.error_class in classes


async def _rolls_back(ctx: Context) -> None:
    await ctx.session.rollback()


async def _commits(ctx: Context) -> None:
    await ctx.session.execute(text("UPDATE saga_shop_orders SET status = 'LEFT'"))
    await ctx.session.commit()


async def _commits_and_goes_on(ctx: Context) -> None:
    try:
        await _commits(ctx)
    except UnitOfWorkError:
        await ctx.session.execute(text("SELECT 1"))


async def _closes(ctx: Context) -> None:
    await ctx.session.close()


async def _invalidates(ctx: Context) -> None:
    await ctx.session.invalidate()


async def _ends_savepoint(ctx: Context) -> None:
    savepoint = ctx.session.get_nested_transaction()
    assert savepoint is not None
    await savepoint.rollback()


async def _leaves_savepoint(ctx: Context) -> None:
    await ctx.session.begin_nested()


ENDS_TRANSACTION = (
    _rolls_back, _commits, _commits_and_goes_on, _closes, _invalidates, _ends_savepoint,
    _leaves_savepoint,
)  # fmt: skip


@on_three
@pytest.mark.parametrize("end", ENDS_TRANSACTION)
async def test_ends_that_end_the_transaction_of_their_batch_hold_up_no_other_saga(
    shop: Shop, ends: dict[str, End], end: End
) -> None:
    """What was to be written about the saga met a dead session, and that ended the consumer."""
    ends["o-1"] = ends["o-3"] = end

    async with asyncio.timeout(60):
        await go_back(shop, "o-1", "o-2", "o-3")

    assert await shop.statuses() == {"o-1": "PENDING", "o-2": "REJECTED", "o-3": "PENDING"}
    stuck = [row for row in await shop.rows() if row.state != "COMPENSATED"]
    assert [(row.state, row.failures) for row in stuck] == [("STUCK", 1)] * 2
