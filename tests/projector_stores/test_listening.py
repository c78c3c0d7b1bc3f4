"""Hearing of notifications on a connection of one's own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import psycopg
import pytest

from pillarbox.projector.postgres.listening import notifications
from pillarbox.servers import Postgres
from pillarbox.servers.ports import LOOPBACK
from tests.support.faultproxy import FaultProxy, Freeze

PATIENCE = 10.0
SOON = 0.05


@asynccontextmanager
async def listening(
    url: str, alive: float = PATIENCE
) -> AsyncIterator[tuple[psycopg.AsyncConnection[object], AsyncIterator[None]]]:
    """Listen, after the first yield, which tells of nothing."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute("LISTEN told")
        async with aclosing(notifications(connection, alive)) as told:
            await anext(told)
            yield connection, told


async def tell(url: str, times: int = 1) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        for number in range(times):
            await connection.execute("SELECT pg_notify('told', %s)", [str(number)])


async def until_it_fails(told: AsyncIterator[None]) -> None:
    async for _ in told:
        pass


async def test_each_time_somebody_tells_it_is_heard(postgres18: Postgres) -> None:
    async with listening(postgres18.url) as (_, told), asyncio.timeout(PATIENCE):
        for _ in range(3):
            await tell(postgres18.url)
            await anext(told)


async def test_what_is_told_many_times_is_heard_and_then_there_is_silence(
    postgres18: Postgres,
) -> None:
    async with listening(postgres18.url) as (_, told), asyncio.timeout(PATIENCE):
        await tell(postgres18.url)
        await anext(told)
        await tell(postgres18.url, times=20)
        await anext(told)

        # The last of the twenty may have come after the first were heard.
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(until_it_fails(told), SOON)


async def test_a_line_that_ends_is_an_error(postgres18: Postgres) -> None:
    async with listening(postgres18.url) as (connection, told):
        async with await psycopg.AsyncConnection.connect(postgres18.url) as other:
            await other.execute("SELECT pg_terminate_backend(%s)", [connection.info.backend_pid])

        with pytest.raises(psycopg.OperationalError):
            async with asyncio.timeout(PATIENCE):
                await anext(told)


async def test_after_silence_the_line_is_tried_and_listened_to_again(postgres18: Postgres) -> None:
    async with listening(postgres18.url, alive=SOON) as (_, told), asyncio.timeout(PATIENCE):
        await anext(told)  # after the try
        await tell(postgres18.url)

        await anext(told)


async def test_a_line_that_answers_nothing_is_given_up(postgres18: Postgres) -> None:
    async with FaultProxy(LOOPBACK, postgres18.port) as proxy:
        url = postgres18.url.replace(f":{postgres18.port}/", f":{proxy.port}/")
        async with listening(url, alive=SOON) as (_, told):
            proxy.now(Freeze())

            failing = asyncio.ensure_future(until_it_fails(told))
            done, _ = await asyncio.wait([failing], timeout=PATIENCE)

            assert done == {failing}
            assert isinstance(failing.exception(), TimeoutError)
