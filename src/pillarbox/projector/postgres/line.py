"""A connection that is opened when it is needed and thrown away when it breaks."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import psycopg
from psycopg import AsyncConnection

from pillarbox.projector.store import StoreUnavailable

Connection = AsyncConnection[Any]
Connect = Callable[[], Awaitable[Connection]]


class Line:
    """One connection for one purpose; whoever uses it has it alone, and not for ever.

    After an error or a time-out the connection is closed: what it was doing ends with it.
    """

    def __init__(self, connect: Connect, limit: float) -> None:
        self._connect, self._limit = connect, limit
        self._connection: Connection | None = None
        self._alone = asyncio.Lock()

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Connection]:
        """Yield the connection, opened if need be."""
        try:
            async with self._alone, asyncio.timeout(self._limit):
                if self._connection is None or self._connection.closed:
                    self._connection = await self._connect()
                yield self._connection
        except (psycopg.Error, OSError, TimeoutError) as error:
            await self.close()
            raise failure(error) from error
        except asyncio.CancelledError:
            await self.close()
            raise

    async def close(self) -> None:
        """Close the connection; a statement that runs on it is given up."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error, OSError):  # it is gone either way
                await connection.close()


def failure(error: Exception) -> StoreUnavailable | asyncio.CancelledError:
    """Return what a failed statement means for whoever asked.

    A cancelled statement is waited for; on a connection that has broken it then ends with that
    error, and the cancellation would be forgotten.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        return asyncio.CancelledError()
    return StoreUnavailable(error)
