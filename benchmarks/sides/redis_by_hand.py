"""The reference for Redis: the overlapped loop, with redis-py's pipelines outside transactions.

The server syncs once for what it has read from all its connections, so there are several of them.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from redis.asyncio import BlockingConnectionPool, Redis

from benchmarks.sides.by_hand import KEY, PAYLOAD, TOPIC
from benchmarks.sides.headers import header_names, header_values
from benchmarks.sides.overlapped import Loop, Message, Send, main

_CONNECTIONS: Final = 4
_NAMES: Final = ["key", *header_names("ce_"), "data"]


async def _add(client: Any, messages: list[Message], loop: Loop) -> None:
    pipeline = client.pipeline(transaction=False)
    for row, _ in messages:
        values = (row[KEY], *header_values(row), row[PAYLOAD])
        pipeline.xadd(row[TOPIC], dict(zip(_NAMES, values, strict=True)))
    answers = await pipeline.execute(raise_on_error=False)
    for message, answer in zip(messages, answers, strict=True):
        if isinstance(answer, Exception):
            loop.refused(answer)
        else:
            loop.answered(message)


@asynccontextmanager
async def opening(url: str, loop: Loop) -> AsyncIterator[Send]:
    """Open the connections."""
    pool = BlockingConnectionPool.from_url(url, max_connections=_CONNECTIONS)
    async with Redis.from_pool(pool) as client, asyncio.TaskGroup() as group:
        free = asyncio.Semaphore(_CONNECTIONS)

        async def send(messages: list[Message]) -> None:
            await free.acquire()
            group.create_task(_add(client, messages, loop)).add_done_callback(
                lambda _: free.release()
            )

        yield send


if __name__ == "__main__":
    main(opening)
