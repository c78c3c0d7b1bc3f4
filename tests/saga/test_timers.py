"""Timers are rows: what is due is taken in batches, repeated, undone, or left STUCK with its reason."""

import asyncio
import json
import random
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as NoFreeConnection

from pillarbox import Context, Saga, Why
from pillarbox.consumer.transactions import CLOCK
from pillarbox.ops import SagaFilter, SagaOps
from pillarbox.saga.carrying import spread
from pillarbox.saga.machine import State
from pillarbox.saga.store import Store
from tests.saga.shop import OrderCreated, Shop, careful_order
from tests.support.database import Database, on, on_postgres
from tests.support.giving_up import give_up

HERE = on("postgres18+asyncpg", "sqlite+aiosqlite")


@pytest.fixture
async def careful(database: Database) -> Shop:
    made = Shop(database, careful_order)
    await made.clear()
    return made


@HERE
async def test_an_undoing_without_reply_is_sent_again_and_then_the_saga_is_stuck_until_resumed(
    careful: Shop,
) -> None:
    shop = careful
    shop.refuses.add("pay o-1")
    await shop.order("o-1")
    await shop.settle("saga-place-order", "inventory")
    await shop.settle("saga-place-order", "payments")  # the inventory is down from now on
    for _ in range(2):
        await shop.time_passes()
        await shop.saga_works()
    row = await shop.row()
    assert (row.state, row.step, row.part, row.tries) == ("STUCK", "reserve", "undo", 2)
    assert len(shop.sent("ReleaseInventory")) == 2
    ops = SagaOps(shop.database.engine, actor="jane")
    (listed,) = await ops.sagas(SagaFilter(state="STUCK"))
    assert listed.waits_for == "reserve to be undone, sent 2 times"

    await ops.resume(row.saga_id, reason="the inventory is back")
    await shop.saga_works()

    assert (await shop.row()).state == "COMPENSATING"
    await shop.settle()
    assert await shop.statuses() == {"o-1": "REJECTED: charge failed: PaymentRefused"}
    assert shop.heard.stands == [State.STUCK, State.COMPENSATED]
    assert shop.stock == set()


@HERE
async def test_a_reply_that_comes_to_a_stuck_saga_sets_it_free(careful: Shop) -> None:
    shop = careful
    shop.refuses.add("pay o-1")
    await shop.order("o-1")
    await shop.settle("saga-place-order", "inventory")
    await shop.settle("saga-place-order", "payments")
    for _ in range(2):
        await shop.time_passes()
        await shop.saga_works()
    assert (await shop.row()).state == "STUCK"

    await shop.settle()

    assert (await shop.row()).state == "COMPENSATED"
    assert await shop.strays() == ["ended"]  # the reply to the second message


@HERE
async def test_many_that_are_due_at_once_are_taken_in_bounded_batches_each_once(
    careful: Shop,
) -> None:
    shop = careful
    orders = [f"o-{n}" for n in range(120)]
    await shop.order(*orders)
    await shop.saga_works()
    await shop.time_passes()

    await shop.saga_works()

    assert sum(shop.heard.batches) == len(orders)
    assert max(shop.heard.batches) <= 50
    assert await _recorded(shop, "ReserveInventory") == 2 * len(orders)
    assert {row.tries for row in await shop.rows()} == {2}


async def _recorded(shop: Shop, event_type: str) -> int:
    return (await shop.database.event_types()).count(event_type)


def test_timers_that_are_set_together_are_due_one_after_another() -> None:
    chance, wait = random.Random(7), timedelta(minutes=5)

    times = sorted(spread(wait, chance) or wait for _ in range(1_000))

    assert times[0] >= wait
    assert times[-1] <= wait + timedelta(seconds=30)
    each = [sum(wait + timedelta(seconds=n) <= t < wait + timedelta(seconds=n + 1) for t in times)
            for n in range(30)]  # fmt: skip
    assert max(each) < 60  # about 33 in each second
    assert spread(None, chance) is None


@on("postgres18+asyncpg")
async def test_a_timer_passes_by_a_saga_that_a_reply_has_and_finds_it_changed(
    careful: Shop,
) -> None:
    shop = careful
    await shop.order("o-1")
    await shop.saga_works()
    await shop.time_passes()
    store, row = Store("place-order"), await shop.row()

    async with shop.database.sessions() as reply, shop.database.sessions() as timer:
        held = await store.find(reply, "default", row.saga_id)
        assert held is not None
        assert await store.due(timer, "default", 10) == []
        await timer.rollback()
        await store.save(reply, held, timedelta(minutes=5))
        await reply.commit()
        assert await store.due(timer, "default", 10) == []


@HERE
async def test_what_fails_at_the_end_of_a_saga_is_tried_again_and_then_stands_stuck_with_its_error(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = [True]
    kind = shop.box.sagas.versions["place-order"][1].kind
    ended = kind.compensated

    async def compensated(self: Saga, start: OrderCreated, ctx: Context, why: Why) -> None:
        await ended(self, start, ctx, why)
        if broken and start.order_id == "o-1":
            raise RuntimeError("no such status")

    monkeypatch.setattr(kind, "compensated", compensated)
    await shop.order("o-1", "o-2")
    await shop.saga_works()
    for _ in range(3):  # nobody replies: both go back, and the end of one of them fails
        await shop.time_passes()
        await shop.saga_works()

    assert await shop.statuses() == {"o-1": "PENDING", "o-2": "REJECTED"}
    (row,) = [row for row in await shop.rows() if row.state != "COMPENSATED"]
    assert row.state == "STUCK"
    assert (row.error_class, row.error_message) == ("RuntimeError", "no such status")
    assert [str(error) for error in shop.heard.errors] == ["no such status"] * 2
    assert await _recorded(shop, "ReleaseInventory") == 1  # what failed has sent nothing
    broken.clear()
    ops = SagaOps(shop.database.engine, actor="jane")
    await ops.compensate(row.saga_id, reason="the status is there")
    await shop.saga_works()
    assert await shop.statuses() == {"o-1": "REJECTED", "o-2": "REJECTED"}


@on("sqlite+aiosqlite")
async def test_an_end_that_cancels_itself_is_a_failure_of_its_saga_and_the_consumer_goes_on(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = shop.box.sagas.versions["place-order"][1].kind

    async def compensated(self: Saga, start: OrderCreated, ctx: Context, why: Why) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(kind, "compensated", compensated)
    await shop.order("o-1")
    await shop.saga_works()
    await shop.time_passes()

    await shop.saga_works()

    assert (await shop.row()).error_class == "CancelledByItself"


AWAY_FOR_THE_CODE = {
    "a mail server": ConnectionRefusedError("refused"),
    "slow": TimeoutError("too slow"),
    "another database": OperationalError("SELECT 1", {}, Exception("connection refused")),
    "its own pool": NoFreeConnection("no connection is free"),
}


@on("postgres18+asyncpg", "postgres18+psycopg", "sqlite+aiosqlite")
@pytest.mark.parametrize("away", AWAY_FOR_THE_CODE)
async def test_an_end_for_which_something_else_is_away_holds_up_no_other_saga(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, away: str
) -> None:
    """It once passed for the database: the batch was undone, again and again, and all timers stood."""
    kind = shop.box.sagas.versions["place-order"][1].kind
    ended = kind.compensated

    async def compensated(self: Saga, start: OrderCreated, ctx: Context, why: Why) -> None:
        if start.order_id == "o-1":
            raise AWAY_FOR_THE_CODE[away]
        await ended(self, start, ctx, why)

    monkeypatch.setattr(kind, "compensated", compensated)
    await shop.order("o-1", "o-2")
    await shop.saga_works()
    for _ in range(3):
        await shop.time_passes()
        await shop.saga_works()

    assert await shop.statuses() == {"o-1": "PENDING", "o-2": "REJECTED"}
    (row,) = [row for row in await shop.rows() if row.state != "COMPENSATED"]
    assert row.state == "STUCK"
    assert row.error_class == type(AWAY_FOR_THE_CODE[away]).__name__


@on("postgres18+asyncpg", "postgres18+psycopg")
@pytest.mark.parametrize("swallowed", [False, True], ids=["raised", "swallowed"])
async def test_ends_that_give_up_their_statements_hold_up_no_other_saga(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, swallowed: bool
) -> None:
    """They passed for a database that had gone away, since the connection goes with the statement."""
    kind = shop.box.sagas.versions["place-order"][1].kind
    ended = kind.compensated

    async def compensated(self: Saga, start: OrderCreated, ctx: Context, why: Why) -> None:
        if start.order_id != "o-2":
            with suppress(*([TimeoutError] if swallowed else [])):
                await give_up(ctx.session)
        await ended(self, start, ctx, why)

    monkeypatch.setattr(kind, "compensated", compensated)
    await shop.order("o-1", "o-2", "o-3")
    await shop.saga_works()
    for _ in range(3):
        await shop.time_passes()
        await shop.saga_works()

    assert await shop.statuses() == {"o-1": "PENDING", "o-2": "REJECTED", "o-3": "PENDING"}
    stuck = [row for row in await shop.rows() if row.state != "COMPENSATED"]
    assert [(row.state, row.failures) for row in stuck] == [("STUCK", 1)] * 2


@on_postgres
async def test_an_end_whose_connection_is_lost_is_not_the_sagas_failure(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = shop.box.sagas.versions["place-order"][1].kind
    ended = kind.compensated
    losses = ["it is lost once"]

    async def compensated(self: Saga, start: OrderCreated, ctx: Context, why: Why) -> None:
        if losses:
            losses.clear()
            with suppress(DBAPIError):
                await ctx.session.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
            raise RuntimeError("the statement before failed")
        await ended(self, start, ctx, why)

    monkeypatch.setattr(kind, "compensated", compensated)
    await shop.order("o-1")
    await shop.saga_works()
    await shop.time_passes()
    await shop.saga_works()
    await shop.saga_works()

    assert not losses
    assert await shop.statuses() == {"o-1": "REJECTED"}
    assert shop.heard.errors == []


@HERE
async def test_the_time_of_what_follows_from_an_end_is_its_own(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the clock of its batch a slow end was cancelled, undone with the others, and came again."""
    kind = shop.box.sagas.versions["place-order"][1].kind
    ended = kind.compensated
    clocks: list[asyncio.Timeout] = []
    due: list[float | None] = []

    async def compensated(self: Saga, start: OrderCreated, ctx: Context, why: Why) -> None:
        clock, _ = ctx.session.info[CLOCK]
        clocks.append(clock)
        due.append(clock.when())
        await ended(self, start, ctx, why)

    monkeypatch.setattr(kind, "compensated", compensated)
    await shop.order("o-1", "o-2")
    await shop.saga_works()
    await shop.time_passes()

    await shop.saga_works()

    assert await shop.statuses() == {"o-1": "REJECTED", "o-2": "REJECTED"}
    assert due == [None, None]
    assert all(clock.when() is not None for clock in clocks)


@on("postgres18+asyncpg")
async def test_what_is_due_is_found_by_the_index_among_many_sagas(shop: Shop) -> None:
    fill = text(
        "INSERT INTO saga (tenant_id, saga_id, name, version, state, start_id, start, steps, due_at, "
        "finished_at) SELECT 'default', gen_random_uuid(), 'place-order', 1, "
        "CASE WHEN n % 2 = 0 THEN 'RUNNING' ELSE 'COMPLETED' END, n::text, '{}', '[]', "
        "CASE WHEN n % 200 = 0 THEN now() - interval '1 hour' WHEN n % 2 = 0 THEN now() + "
        "interval '1 hour' END, CASE WHEN n % 2 = 1 THEN now() END FROM generate_series(1, 20000) n"
    )
    async with shop.database.engine.begin() as connection:
        await connection.execute(fill)
        await connection.exec_driver_sql("ANALYZE saga")
    query = Store("place-order")._due().limit(50)

    sql = query.compile(
        dialect=shop.database.engine.dialect, compile_kwargs={"literal_binds": True}
    )
    async with shop.database.engine.connect() as connection:
        plan = await connection.scalar(text(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}"))

    nodes = list(_nodes((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]))
    (read,) = [node for node in nodes if node.get("Relation Name") == "saga"]
    assert read.get("Index Name") == "ix_saga_due", nodes
    assert read["Actual Rows"] <= 51


def _nodes(plan: dict[str, Any]) -> Any:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)
