"""Expired keys are removed while the application runs, and 100,000 random keys leave few behind."""

import asyncio
import random
from collections.abc import Callable
from datetime import timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from pillarbox.idempotency.cleanup import Cleanup
from pillarbox.idempotency.metrics import IdempotencyMetrics
from pillarbox.idempotency.settings import IdempotencySettings
from pillarbox.idempotency.stores import store_for
from tests.idempotency.conftest import Make, client_of
from tests.idempotency.keys import K1, ORDER, expire, key, keys, seed
from tests.support.database import Database, on

pytestmark = on("postgres18+asyncpg", "postgres18+psycopg", "sqlite+aiosqlite")


def cleanup(database: Database, **options: object) -> Cleanup:
    store = store_for(database.engine.dialect.name, IdempotencySettings())
    return Cleanup(database.engine, store, **options)  # type: ignore[arg-type] # named by the tests


def value(metrics: IdempotencyMetrics, name: str) -> object:
    (found,) = [sample.value for sample in metrics.snapshot() if sample.name == name]
    return found


@pytest.fixture(autouse=True)
async def empty(database: Database) -> None:
    async with database.engine.begin() as connection:
        await connection.execute(text("DELETE FROM idempotency"))


class Turns:
    """A clock that goes on when the test says so."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self._next, self._paused = asyncio.Event(), asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self._paused.set()
        await self._next.wait()
        self._next.clear()

    async def go_on(self) -> None:
        """Let one sweep be done, and wait until the next pause has begun."""
        await self._paused.wait()
        self._paused.clear()
        self._next.set()
        await self._paused.wait()


async def test_a_sweep_deletes_what_has_expired_and_nothing_else(database: Database) -> None:
    await seed(database, 250)
    await expire(database)
    await seed(database, 5, user="eve")
    metrics = IdempotencyMetrics()

    deleted = await cleanup(database, batch=100, observer=metrics).sweep()

    assert (deleted, await keys(database)) == (250, 5)
    assert value(metrics, "pillarbox_idempotency_expired_keys_total") == 250


async def test_sweeps_come_again_and_again_at_times_of_their_own(database: Database) -> None:
    turns = Turns()
    sweeping = cleanup(
        database, every=timedelta(seconds=60), sleep=turns.sleep, chance=random.Random(7)
    )
    task = asyncio.create_task(sweeping.run())
    try:
        for _ in range(4):
            await seed(database, 3)
            await expire(database)
            await turns.go_on()
            assert await keys(database) == 0
    finally:
        task.cancel()
        await asyncio.wait([task])

    assert all(30 <= pause <= 90 for pause in turns.pauses)
    assert len(set(turns.pauses)) == len(turns.pauses)


async def test_a_database_that_refuses_only_delays_the_sweep(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns, metrics = Turns(), IdempotencyMetrics()
    sweeping = cleanup(database, sleep=turns.sleep, observer=metrics)
    await seed(database, 3)
    await expire(database)
    delete: Callable[..., int] = sweeping.store.forget_expired
    failures = [OperationalError("DELETE", {}, Exception("away")), OSError("away")]

    def refused(*args: object) -> int:
        if failures:
            raise failures.pop()
        return delete(*args)

    monkeypatch.setattr(sweeping.store, "forget_expired", refused)
    task = asyncio.create_task(sweeping.run())
    try:
        for _ in range(3):
            await turns.go_on()
    finally:
        task.cancel()
        await asyncio.wait([task])

    assert await keys(database) == 0
    assert value(metrics, "pillarbox_idempotency_cleanup_failures_total") == 2


async def test_a_running_application_cleans_up_until_it_ends(
    database: Database, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = Turns()
    monkeypatch.setattr(Cleanup, "run", _with_turns(turns))
    shop = make()
    async with shop.box.running():
        async with client_of(shop) as client:
            await client.post("/orders", json=ORDER, headers=K1)
        await expire(database)
        await turns.go_on()

        assert await keys(database) == 0

    names = {task.get_coro().__qualname__ for task in asyncio.all_tasks()}  # type: ignore[union-attr] # a task has one
    assert "Cleanup.run" not in names


def _with_turns(turns: Turns) -> Callable[[Cleanup], object]:
    run = Cleanup.run

    async def with_turns(self: Cleanup) -> None:
        await run(Cleanup(self.engine, self.store, sleep=turns.sleep))

    return with_turns


async def test_a_hundred_thousand_random_keys_leave_the_table_bounded(
    database: Database, make: Make
) -> None:
    """Hold 20 callers at their quota, let time pass, and send random keys again."""
    shop = make(quota=5_000)
    for caller in range(20):
        await seed(database, 5_000, user=f"caller-{caller}")
    refused = await post_as(shop, "caller-7", range(20))
    assert (refused, await keys(database)) == ([429] * 20, 100_000)

    await expire(database)
    served = await post_as(shop, "caller-7", range(20, 40))
    deleted = await cleanup(database, batch=10_000).sweep()

    assert served == [409] * 20  # what this endpoint answers
    assert (deleted, await keys(database)) == (100_000, 20)


async def post_as(shop: object, user: str, numbers: range) -> list[int]:
    async with client_of(shop, user) as client:  # type: ignore[arg-type] # made by `make`
        answers = [
            await client.post("/rolled-back", json=ORDER, headers=key(number)) for number in numbers
        ]
    return [answer.status_code for answer in answers]
