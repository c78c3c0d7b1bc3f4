"""One connection of a subscription: a question at a time, and a new connection after a break."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError, ResponseError

from pillarbox.bus.redis.connection import let_go, reach

FAILURES: Final = (TimeoutError, OSError, RedisError)
Word = str | bytes | int


class Line:
    """Ask one server; answers are bytes, since bodies are no text."""

    def __init__(self, make: Callable[[], AbstractConnection], seconds: float) -> None:
        self._make = make
        self._seconds = seconds
        self._client: Any = None  # Its parts have no types.
        self._turn = asyncio.Lock()

    async def ask(self, *words: Word) -> Any:
        """Send a command and return its answer; raise one of `FAILURES`.

        A call that is cancelled or gets no answer takes its connection along: the answer that comes
        late would be taken for that of the next command.
        """
        async with self._turn:
            try:
                async with asyncio.timeout(self._seconds):
                    client = await self._standing()
                    await client.send_command(*words)
                    return await client.read_response(disable_decoding=True, timeout=self._seconds)
            except ResponseError:
                raise
            except BaseException:
                await self._drop()
                raise

    async def close(self) -> None:
        """Let go of the connection."""
        await self._drop()

    async def _standing(self) -> Any:
        if self._client is None:
            self._client = self._make()
            await reach(self._client)
            # The limit is ours: the client's own swallows a cancellation now and then (Python 3.11).
            self._client.socket_timeout = None
        return self._client

    async def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await let_go(client)
