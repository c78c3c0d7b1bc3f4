"""Hot rows in a real Redis: removed after the commit, and never put back by a slow reader."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import event, select
from sqlalchemy.ext.asyncio import async_sessionmaker
from sqlalchemy.orm import Session

from pillarbox import ReadDAO
from pillarbox.clock import SYSTEM_CLOCK, Clock
from pillarbox.consumer.transactions import DatabaseAway
from pillarbox.errors import ReadModelSourceChanged
from pillarbox.readmodel.cache import Found, RowName
from pillarbox.readmodel.checkpoint import EVERYTHING, Checkpoints
from pillarbox.readmodel.parts import Parts
from pillarbox.readmodel.rebuild import LogRebuild
from pillarbox.readmodel.redis_cache import RedisRowCache
from pillarbox.readmodel.runner import LogFollower, LogRunner
from pillarbox.schema.tables import readmodel
from pillarbox.servers import Redis
from tests.readmodel.bank import Bank, on_two
from tests.readmodel.rig import Accounts, Deposited, Rig
from tests.support.database import on

ROW = ("default", "a")
on_one = on("postgres18+asyncpg")


def cached(rig: Rig, cache: RedisRowCache) -> Parts:
    return Parts(rig.database.sessions, rig.parts().config, cache=cache)


async def read(rig: Rig, cache: RedisRowCache) -> int | None:
    async with rig.database.sessions() as session:
        row = await ReadDAO(session, Accounts, cache=cache).get("a")
    return None if row is None else row["cents"]


@on_one
async def test_a_row_is_read_from_the_cache_and_again_from_the_table_when_it_changed(
    rig: Rig, cache: RedisRowCache
) -> None:
    runner = LogRunner(Accounts(), cached(rig, cache))
    await rig.record(Deposited("a", 5))
    await runner.drain()
    first = await read(rig, cache)
    async with rig.database.engine.begin() as connection:
        await connection.exec_driver_sql("UPDATE account SET cents = 99")
    from_cache = await read(rig, cache)
    await rig.record(Deposited("a", 1))

    await runner.drain()

    assert (first, from_cache) == (5, 5)
    assert await read(rig, cache) == 100


async def test_a_slow_reader_cannot_put_an_old_row_back(cache: RedisRowCache) -> None:
    """It read before the commit, and puts after the removal."""
    slow = await cache.get("accounts", ROW)
    await cache.forget("accounts", [ROW])

    kept = await cache.put("accounts", ROW, b"old", slow.token)
    quick = await cache.get("accounts", ROW)
    await cache.put("accounts", ROW, b"new", quick.token)
    again = await cache.put("accounts", ROW, b"old", slow.token)

    assert (kept, again) == (False, False)
    assert (await cache.get("accounts", ROW)).content == b"new"


async def test_a_token_of_a_row_that_redis_has_dropped_is_worthless(redis_server: Redis) -> None:
    cache = RedisRowCache(redis_server.url, keep=timedelta(milliseconds=1), prefix=uuid4().hex)
    found = await cache.get("accounts", ROW)
    while (await cache.get("accounts", ROW)).token == found.token:
        pass

    assert await cache.put("accounts", ROW, b"old", found.token) is False
    await cache.close()


async def test_all_rows_of_a_model_are_forgotten_together(cache: RedisRowCache) -> None:
    found = await cache.get("accounts", ROW)
    await cache.put("accounts", ROW, b"one", found.token)

    await cache.forget_all("accounts")

    assert (await cache.get("accounts", ROW)).content is None
    assert await cache.put("accounts", ROW, b"one", found.token) is False


@on_one
async def test_a_rebuild_forgets_every_copy(rig: Rig, cache: RedisRowCache) -> None:
    parts = cached(rig, cache)
    await rig.record(Deposited("a", 5))
    await LogRunner(Accounts(), parts).drain()
    async with rig.database.engine.begin() as connection:
        await connection.exec_driver_sql("UPDATE account SET cents = 99")
    wrong = await read(rig, cache)

    await LogRebuild(Accounts(), parts).run()

    assert (wrong, await read(rig, cache)) == (99, 5)


@on_one
async def test_rows_of_a_process_that_died_after_its_commit_are_forgotten_by_the_next(
    rig: Rig, cache: RedisRowCache
) -> None:
    await rig.record(Deposited("a", 5))
    await LogRunner(Accounts(), cached(rig, cache)).drain()
    await read(rig, cache)
    await rig.record(Deposited("a", 1))
    dead = dead_cache()
    await LogRunner(Accounts(), cached(rig, dead)).drain()
    stale = await read(rig, cache)

    await LogRunner(Accounts(), cached(rig, cache)).drain()

    assert (stale, await read(rig, cache)) == (5, 6)


@on_one
async def test_rows_are_forgotten_that_another_process_changed_again_before_it_died(
    rig: Rig, cache: RedisRowCache
) -> None:
    """A list of the same rows was once taken for the one that was dealt with."""
    runner = LogRunner(Accounts(), cached(rig, cache))
    await rig.record(Deposited("a", 5))
    await runner.drain()
    before = await read(rig, cache)
    await rig.record(Deposited("a", 1))
    dead = dead_cache()
    await LogRunner(Accounts(), cached(rig, dead)).drain()

    await runner.drain()

    assert (before, await read(rig, cache)) == (5, 6)


@on_one
async def test_every_copy_is_forgotten_when_a_process_died_that_had_changed_too_many_rows_to_list(
    rig: Rig, cache: RedisRowCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That all were to go was once known to the dead process alone."""
    monkeypatch.setattr("pillarbox.readmodel.forgetting.MOST", 1)
    await rig.record(Deposited("a", 5))
    await LogRunner(Accounts(), cached(rig, cache)).drain()
    before = await read(rig, cache)
    await rig.record(Deposited("a", 1), Deposited("b", 1))
    await LogRunner(Accounts(), cached(rig, dead_cache())).drain()

    await LogRunner(Accounts(), cached(rig, cache)).drain()

    assert (before, await read(rig, cache)) == (5, 6)


@on_one
async def test_a_rebuild_whose_cache_is_away_leaves_its_copies_to_the_next_process(
    rig: Rig, cache: RedisRowCache
) -> None:
    """It once ended with the cache's error, and nobody forgot anything afterwards."""
    await rig.record(Deposited("a", 5))
    await LogRunner(Accounts(), cached(rig, cache)).drain()
    async with rig.database.engine.begin() as connection:
        await connection.exec_driver_sql("UPDATE account SET cents = 99")
    wrong = await read(rig, cache)

    await LogRebuild(Accounts(), cached(rig, dead_cache())).run()
    stale = await read(rig, cache)
    await LogRunner(Accounts(), cached(rig, cache)).drain()

    assert (wrong, stale, await read(rig, cache)) == (99, 99, 5)


@on_one
async def test_copies_are_forgotten_after_a_rebuild_by_the_model_that_follows_a_subscription(
    rig: Rig, cache: RedisRowCache
) -> None:
    bank = Bank(rig, cache=cache)
    bank.deposit(5, 1)
    await bank.model.drain()
    async with rig.database.engine.begin() as connection:
        await connection.exec_driver_sql("UPDATE account SET cents = 99")
    wrong = await read(rig, cache)

    await Bank(rig, bank.bus, cache=dead_cache()).model.rebuild()
    stale = await read(rig, cache)
    await bank.model.drain()

    assert (wrong, stale, await read(rig, cache)) == (99, 99, 5)
    assert await rig.database.scalar("SELECT CAST(touched AS text) FROM readmodel") == "[]"


class Emptied:
    """A cache that is told to forget all, and counts how often."""

    def __init__(self) -> None:
        self.times = 0

    async def get(self, model: str, row: RowName) -> Found:
        raise NotImplementedError

    async def put(self, model: str, row: RowName, content: bytes, token: str) -> bool:
        raise NotImplementedError

    async def forget(self, model: str, rows: Sequence[RowName]) -> None:
        del model, rows

    async def forget_all(self, model: str) -> None:
        del model
        self.times += 1


async def touched(rig: Rig) -> Any:
    async with rig.database.engine.connect() as connection:
        return await connection.scalar(select(readmodel.c.touched))


@on_two
async def test_a_process_without_the_cache_leaves_the_mark_of_a_rebuild_to_one_that_has_it(
    rig: Rig,
) -> None:
    """Its next batch once took the mark away, and old copies stayed until they ran out."""
    cache = Emptied()
    await rig.record(Deposited("a", 5))
    await LogRebuild(Accounts(), rig.parts()).run()
    await rig.record(Deposited("a", 1))

    await rig.runner().drain()
    left = await touched(rig)
    await LogRunner(Accounts(), Parts(rig.database.sessions, cache=cache)).drain()

    assert left == [list(EVERYTHING)]
    assert cache.times == 1


@on_two
async def test_a_subscription_that_is_refused_leaves_the_mark_of_the_log_s_generation(
    rig: Rig,
) -> None:
    """It once forgot all copies first, and noted so in a row that is not its own."""
    cache = Emptied()
    await rig.record(Deposited("a", 5))
    await LogRebuild(Accounts(), rig.parts()).run()

    with pytest.raises(ReadModelSourceChanged):
        await Bank(rig, cache=cache).model.drain()

    assert await touched(rig) == [list(EVERYTHING)]
    assert cache.times == 0


@on_two
async def test_a_list_that_was_written_meanwhile_is_not_taken_for_the_one_that_is_done(
    rig: Rig,
) -> None:
    checkpoints = Checkpoints()
    await rig.record(Deposited("a", 5))
    await rig.runner().drain()
    async with rig.parts().transactions.begin(None) as session:
        before = await checkpoints.find(session, "accounts")
        assert before is not None
        await checkpoints.move(session, before, before.position, events=1, touched=[list(ROW)])
        await checkpoints.forgotten(session, before)
        after = await checkpoints.find(session, "accounts")
        assert after is not None
        await checkpoints.forgotten(session, replace(after, paused=True))

    assert after.touched == (ROW,)
    assert await touched(rig) == []


class LaterClock:
    """A clock by which every held key is due."""

    def now(self) -> datetime:
        return SYSTEM_CLOCK.now() + timedelta(hours=1)


def dying(rig: Rig, *, broken: bool, clock: Clock = SYSTEM_CLOCK) -> LogFollower:
    """Make a process that says no word to the cache, and has an event to hold while it is broken."""
    dead = dead_cache()
    config = rig.parts(retry_delay=60).config
    model = Accounts()
    model.broken = broken
    return LogFollower(model, Parts(rig.database.sessions, config, cache=dead, clock=clock))


@on_one
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "after a batch of the same rows"])
async def test_rows_of_a_held_key_are_forgotten_when_the_process_that_released_it_died(
    rig: Rig, cache: RedisRowCache, beside: bool
) -> None:
    """They were once listed nowhere; and a list of the same rows at the same position is another."""
    runner = LogRunner(Accounts(), cached(rig, cache))
    await rig.record(Deposited("a", 5))
    await runner.drain()
    await rig.record_raw("Opened", {"account_id": "a", "owner": "ann"}, key="another")
    if beside:
        await rig.record(Deposited("a", 1))
    await dying(rig, broken=True).turn()
    await runner.drain()
    before = await read(rig, cache)

    await dying(rig, broken=False, clock=LaterClock()).release_due()
    stale = await read(rig, cache)
    await runner.drain()

    assert before == stale == (6 if beside else 5)
    assert await read(rig, cache) == 0
    assert await rig.count("readmodel_held") == 0


class Unanswered(Session):
    """A session whose commits take effect, while nobody hears of it."""

    lost = False


@event.listens_for(Unanswered, "after_commit")
def lose_the_answer(session: Unanswered) -> None:
    if session.lost:
        raise ConnectionResetError


@on_one
async def test_rows_of_a_commit_whose_answer_was_lost_are_forgotten_by_the_next_batch(
    rig: Rig, cache: RedisRowCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were once taken for forgotten, since this process had listed them itself."""
    sessions = async_sessionmaker(rig.database.engine, sync_session_class=Unanswered)
    runner = LogRunner(Accounts(), Parts(sessions, rig.parts().config, cache=cache))
    await rig.record(Deposited("a", 5))
    await runner.drain()
    before = await read(rig, cache)
    await rig.record(Deposited("a", 1))
    with monkeypatch.context() as patch:
        patch.setattr(Unanswered, "lost", True)
        with pytest.raises(DatabaseAway):
            await runner.drain()

    await runner.drain()

    assert (before, await read(rig, cache)) == (5, 6)


def dead_cache() -> RedisRowCache:
    """Return the cache as a process sees it that dies before it can say a word to it."""
    return RedisRowCache("redis://127.0.0.1:1", prefix="nobody")
