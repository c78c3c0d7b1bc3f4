"""A connection that takes a large answer as it has arrived."""

import asyncio
import socket
from collections.abc import AsyncIterator, Generator

import psycopg
import pytest
from psycopg.waiting import Ready, Wait

from pillarbox.projector.postgres.eager import EagerConnection, eager
from pillarbox.servers import Postgres

_ROWS = 20_000
_LARGE = f"SELECT n, repeat('x', 300) FROM generate_series(1, {_ROWS}) AS n"


@pytest.fixture
async def connection(postgres18: Postgres) -> AsyncIterator[EagerConnection]:
    opened = await EagerConnection.connect(postgres18.url, autocommit=True)
    async with opened:
        yield opened


def statement() -> Generator[Wait, Ready | int, list[Ready | int]]:
    """Ask for the socket twice, as psycopg does; return what was answered."""
    return [(yield Wait.R), (yield Wait.R)]


def test_what_has_arrived_is_taken_without_a_wait_and_the_rest_is_waited_for() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        waiting = eager(statement(), ours.fileno())
        assert next(waiting) == Wait.R

        theirs.send(b"x")
        with pytest.raises(StopIteration) as ended:
            next(eager(statement(), ours.fileno()))

    assert ended.value.value == [Ready.R, Ready.R]


async def test_a_large_answer_is_whole(connection: EagerConnection) -> None:
    rows = await (await connection.execute(_LARGE)).fetchall()

    assert [number for number, _ in rows] == list(range(1, _ROWS + 1))


async def test_a_cancelled_statement_ends_at_the_server_too(connection: EagerConnection) -> None:
    running = asyncio.ensure_future(connection.execute("SELECT pg_sleep(60)"))
    await asyncio.sleep(0)
    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(20):
            await running

    assert await (await connection.execute("SELECT 1")).fetchall() == [(1,)]


async def test_a_connection_that_breaks_is_an_error(
    connection: EagerConnection, postgres18: Postgres
) -> None:
    running = asyncio.ensure_future(connection.execute("SELECT pg_sleep(60)"))
    async with await EagerConnection.connect(postgres18.url, autocommit=True) as other:
        await other.execute("SELECT pg_terminate_backend(%s)", [connection.info.backend_pid])

    with pytest.raises(psycopg.OperationalError):
        async with asyncio.timeout(20):
            await running
