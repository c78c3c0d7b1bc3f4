"""Many at once, or one alone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turnstile:
    """Let work go side by side, and let one have the process for itself.

    Whoever wants to be alone is served first: nobody new comes in before it has been. Those who may
    take long have a door of their own, which is closed first: while they are waited for, the others
    go on.
    """

    def __init__(self) -> None:
        self._others, self._slow = _Door(), _Door()

    @asynccontextmanager
    async def beside_others(self) -> AsyncIterator[None]:
        """Work while others work too."""
        async with self._others.through():
            yield

    @asynccontextmanager
    async def for_long(self) -> AsyncIterator[None]:
        """Work while others work too, perhaps for minutes."""
        async with self._slow.through():
            yield

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Work while nobody else does."""
        async with self._slow.closed(), self._others.closed():
            yield


class _Door:
    """Count who is inside; closed, nobody comes in, and those inside have left."""

    def __init__(self) -> None:
        self._inside = 0
        self._closing = asyncio.Lock()
        self._empty = asyncio.Event()
        self._empty.set()

    @asynccontextmanager
    async def through(self) -> AsyncIterator[None]:
        async with self._closing:
            self._inside += 1
            self._empty.clear()
        try:
            yield
        finally:
            self._inside -= 1
            if not self._inside:
                self._empty.set()

    @asynccontextmanager
    async def closed(self) -> AsyncIterator[None]:
        async with self._closing:
            await self._empty.wait()
            yield
