"""Hear of notifications, at little cost for each: at 200 a second psycopg's own way took 7 % of the CPU."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final, Self

import psycopg
from psycopg import AsyncConnection

ALIVE_SECONDS: Final = 30.0


async def notifications(
    connection: AsyncConnection[Any], alive: float = ALIVE_SECONDS
) -> AsyncGenerator[None, None]:
    """Yield when there were notifications; those that come close together count as one.

    When there was none for long the server is asked for a sign of life. The connection is used for
    nothing else meanwhile.
    """
    while True:
        yield  # what came together with an answer was read with it
        with Ear(connection) as ear:
            while await ear.hears(alive):
                yield
        async with asyncio.timeout(alive):
            await connection.execute("SELECT 1")


class Ear:
    """Look at a connection's socket whenever something arrives."""

    def __init__(self, connection: AsyncConnection[Any]) -> None:
        self._pgconn = connection.pgconn
        self._socket: int | None = None
        self._loop = asyncio.get_running_loop()
        self._heard = asyncio.Event()
        self._failure: psycopg.Error | None = None

    def __enter__(self) -> Self:
        self._socket = self._pgconn.socket
        self._loop.add_reader(self._socket, self._look)
        return self

    def __exit__(self, *failure: object) -> None:
        self._look_no_more()

    async def hears(self, alive: float) -> bool:
        """Wait for notifications; tell whether there was one, in so many seconds."""
        try:
            async with asyncio.timeout(alive):
                await self._heard.wait()
        except TimeoutError:
            return False
        if self._failure is not None:
            raise self._failure
        self._heard.clear()
        return True

    def _look(self) -> None:
        try:
            self._pgconn.consume_input()
            # Behind what was read there may be the end, of which uvloop does not tell a second time.
            self._pgconn.consume_input()
        except psycopg.Error as error:
            self._failure = error
            self._heard.set()
            self._look_no_more()  # its end would be looked at without end
        while self._pgconn.notifies() is not None:
            self._heard.set()

    def _look_no_more(self) -> None:
        """Let go of the socket, once: its number may be another's by the second time."""
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._socket = None
