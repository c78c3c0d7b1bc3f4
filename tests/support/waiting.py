"""Wait for a condition, never for a time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

LIMIT: Final = 30.0


async def until(condition: Callable[[], Awaitable[bool]], what: str, limit: float = LIMIT) -> None:
    """Ask until a condition holds, and fail by name when it does not come."""
    try:
        async with asyncio.timeout(limit):
            while not await condition():  # noqa: ASYNC110 - the other side is a server, not a task
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"not within {limit} s: {what}") from None
