"""A few connections, each lent to one call at a time."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as Disconnected

from pillarbox.bus.handover import CLOSED
from pillarbox.bus.redis.connection import Connection

# Redis writes to its disk once for all connections that it has read from, so that calls which
# overlap gain from a connection each; more than the calls of a projector gain nothing.
CONNECTIONS: Final = 8


class Connections:
    """Open connections as they are needed, and keep those that stand."""

    def __init__(self, make: Callable[[], AbstractConnection], seconds: float) -> None:
        self._make = make
        self._seconds = seconds
        self._room = asyncio.Semaphore(CONNECTIONS)
        self._idle: list[Connection] = []
        self._lent: set[Connection] = set()
        self._closings = 0

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[Connection]:
        """Lend a connection; it is kept only if every command has had its answer."""
        closings = self._closings
        async with self._room:
            connection = await self._standing()
            try:
                if closings != self._closings:
                    raise Disconnected("the bus was closed")
                self._lent.add(connection)
                yield connection
            finally:
                self._lent.discard(connection)
                if connection.usable and closings == self._closings:
                    self._idle.append(connection)
                else:
                    await connection.end()

    async def close(self) -> None:
        """End all connections; calls under way have no answer."""
        self._closings += 1
        idle, self._idle = self._idle, []
        for connection in (*idle, *self._lent):
            await connection.end(CLOSED)

    async def _standing(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
            await connection.end()
        return await self._opened()

    async def _opened(self) -> Connection:
        connection = Connection(self._make())
        try:
            async with asyncio.timeout(self._seconds):
                await connection.open()
        except BaseException:
            await connection.end()
            raise
        return connection
