"""Hearing of notifications on a connection of one's own."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from pillarbox.projector.postgres.listening import Ear, notifications
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


def line_over(near: socket.socket, answers: Iterator[Exception | None]) -> Any:
    """Make a connection whose socket is this one, and whose looks end like that."""

    def look() -> None:
        near.setblocking(False)
        with suppress(BlockingIOError):
            near.recv(100)
        answer = next(answers)
        if answer is not None:
            raise answer

    pgconn = SimpleNamespace(socket=near.fileno(), consume_input=look, notifies=lambda: None)
    return SimpleNamespace(pgconn=pgconn)


ENDED = psycopg.OperationalError("the server is gone")


async def test_an_end_right_behind_what_was_read_is_noticed_at_once() -> None:
    near, far = socket.socketpair()
    with near, far, Ear(line_over(near, iter([None, ENDED]))) as ear:
        far.send(b"told")  # uvloop tells of an end once, together with what was sent before it

        with pytest.raises(psycopg.OperationalError):
            await ear.hears(PATIENCE)


async def test_the_number_of_a_socket_that_has_ended_may_be_given_to_another() -> None:
    near, far = socket.socketpair()
    loop = asyncio.get_running_loop()
    with near, far:
        with Ear(line_over(near, iter([ENDED]))) as ear:
            far.send(b"told")
            with pytest.raises(psycopg.OperationalError):
                await ear.hears(PATIENCE)
            loop.add_reader(near.fileno(), near.fileno)  # another's by now

        assert loop.remove_reader(near.fileno())


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
