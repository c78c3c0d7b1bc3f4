"""Who reads through the cache while a model goes on reads what was committed."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from pillarbox import ReadDAO
from pillarbox.readmodel.cache import Found, RowName
from pillarbox.readmodel.redis_cache import RedisRowCache
from pillarbox.readmodel.runner import LogRunner
from pillarbox.servers.ports import free_ports
from tests.readmodel.bank import Bank
from tests.readmodel.rig import Accounts, Deposited, Rig
from tests.readmodel.test_cache import cached, read
from tests.support.database import on

on_one = on("postgres18+asyncpg")


@on_one
async def test_a_copy_is_gone_when_the_next_message_of_a_subscription_has_changed_its_row(
    rig: Rig, cache: RedisRowCache
) -> None:
    bank = Bank(rig, cache=cache)
    bank.deposit(5, 1)
    await bank.model.drain()
    first = await read(rig, cache)
    async with rig.database.engine.begin() as connection:
        await connection.exec_driver_sql("UPDATE account SET cents = 99")
    from_cache = await read(rig, cache)
    bank.deposit(1, 2)

    await bank.model.drain()

    assert (first, from_cache) == (5, 5)
    assert await read(rig, cache) == 100


class Overtaken(AsyncSession):
    """A session whose answers come so late that something else has happened meanwhile."""

    def __init__(self, engine: AsyncEngine, meanwhile: Callable[[], Awaitable[None]]) -> None:
        super().__init__(engine)
        self._meanwhile = meanwhile

    async def execute(self, *arguments: Any, **options: Any) -> Any:
        found = await super().execute(*arguments, **options)
        await self._meanwhile()
        return found


@on_one
async def test_a_row_that_changes_between_its_select_and_its_put_is_not_cached_as_it_was(
    rig: Rig, cache: RedisRowCache
) -> None:
    """A token that is taken after the read is good, whatever was forgotten before."""
    runner = LogRunner(Accounts(), cached(rig, cache))
    await rig.record(Deposited("a", 5))
    await runner.drain()

    async def change() -> None:
        await rig.record(Deposited("a", 1))
        await runner.drain()

    async with Overtaken(rig.database.engine, change) as session:
        old = await ReadDAO(session, Accounts, cache=cache).get("a")

    assert old is not None
    assert old["cents"] == 5
    assert await read(rig, cache) == 6


class Away(RedisRowCache):
    """A cache that answers nobody, or nobody who wants to put a row."""

    def __init__(self, url: str, *, gets: bool) -> None:
        super().__init__(url)
        self.gets = gets

    async def get(self, model: str, row: RowName) -> Found:
        return Found(None, "token") if self.gets else await super().get(model, row)


@on_one
@pytest.mark.parametrize("gets", [False, True], ids=["for all", "for whoever puts"])
async def test_while_the_cache_is_away_rows_are_read_from_their_table(
    rig: Rig, gets: bool, caplog: pytest.LogCaptureFixture
) -> None:
    await rig.record(Deposited("a", 5))
    await LogRunner(Accounts(), rig.parts()).drain()
    cache = Away(f"redis://127.0.0.1:{free_ports(['nobody'])['nobody']}", gets=gets)

    found = await read(rig, cache)
    await cache.close()

    assert found == 5
    assert [record.message for record in caplog.records] == ["cache_away"]
