"""Many at once, or one alone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turnstile:
    """Let work go side by side, and let one have the process for itself.

    Whoever wants to be alone is served first: nobody new comes in before it has been.
    """

    def __init__(self) -> None:
        self._inside = 0
        self._alone = asyncio.Lock()
        self._empty = asyncio.Event()
        self._empty.set()

    @asynccontextmanager
    async def beside_others(self) -> AsyncIterator[None]:
        """Work while others work too."""
        async with self._alone:
            self._inside += 1
            self._empty.clear()
        try:
            yield
        finally:
            self._inside -= 1
            if not self._inside:
                self._empty.set()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Work while nobody else does."""
        async with self._alone:
            await self._empty.wait()
            yield
