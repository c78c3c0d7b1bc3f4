"""Wait for aiormq so that a limit holds."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

Answer = TypeVar("Answer")

_left: Final[set[asyncio.Task[Any]]] = set()


async def leavable(call: Coroutine[Any, Any, Answer]) -> Answer:
    """Wait for a call of the client; a caller who is cancelled leaves at once.

    The client takes a cancellation that comes together with an answer or with the end of a channel
    for its own, and goes on: a limit around it would pass unheard, and what follows would have none.
    When its connection ends it cancels its calls itself; for the caller that is a broken connection.
    """
    task = asyncio.get_running_loop().create_task(call)
    try:
        await asyncio.wait((task,))
    finally:
        if not task.done():
            task.cancel()
            _left.add(task)
            task.add_done_callback(_forget)
    if task.cancelled():
        raise ConnectionError("the connection ended before the broker answered")
    return task.result()


def _forget(task: asyncio.Task[Any]) -> None:
    _left.discard(task)
    if not task.cancelled():
        task.exception()  # Seen: whoever asked has left.
