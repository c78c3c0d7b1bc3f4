"""The reference for Redis: the overlapped loop, with XADD commands in bulk outside transactions.

Commands are written and answers counted by hand: redis-py's own pipeline packs each word by itself
and parses each answer. The server syncs once for what it has read from all its connections, so there are
several of them.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from redis.asyncio import Redis

from benchmarks.sides.by_hand import KEY, PAYLOAD, TOPIC
from benchmarks.sides.headers import header_names, header_values
from benchmarks.sides.overlapped import Loop, Message, Send, main

_CONNECTIONS: Final = 4
_READ_BYTES: Final = 65_536
_NAMES: Final = [f"${len(name)}\r\n{name}\r\n" for name in header_names("ce_")]
_WORDS: Final = 7 + 2 * len(_NAMES)  # XADD, topic, *, data and key with their values


class Connection:
    """Write commands; answers come in their order."""

    def __init__(self, client: Any, loop: Loop) -> None:
        self._reader: asyncio.StreamReader = client._reader  # noqa: SLF001 - nothing public is bulk
        self._writer: asyncio.StreamWriter = client._writer  # noqa: SLF001
        self._loop = loop
        self.in_flight: deque[Message] = deque()

    async def send(self, messages: list[Message]) -> None:
        """Send messages in one piece."""
        self.in_flight += messages
        self._writer.write(b"".join([_command(row) for row, _ in messages]))
        await self._writer.drain()

    async def hear(self) -> None:
        """Take answers until the task is cancelled; each is a length and an id."""
        rest = b""
        while data := await self._reader.read(_READ_BYTES):
            lines = (rest + data).split(b"\r\n")
            rest = lines.pop()
            for line in lines:
                if line[:1] == b"-":
                    self._loop.refused(line)
                elif line[:1] != b"$":
                    self._loop.answered(self.in_flight.popleft())
        self._loop.refused("the connection broke")


def _command(row: Any) -> bytes:
    topic, key, body = row[TOPIC], row[KEY], row[PAYLOAD]
    values = zip(_NAMES, header_values(row), strict=True)
    headers = "".join([f"{name}${len(value)}\r\n{value}\r\n" for name, value in values])
    start = (
        f"*{_WORDS}\r\n$4\r\nXADD\r\n${len(topic)}\r\n{topic}\r\n$1\r\n*\r\n$3\r\nkey\r\n"
        f"${len(key)}\r\n{key}\r\n{headers}$4\r\ndata\r\n${len(body)}\r\n"
    )
    return b"%b%b\r\n" % (start.encode(), body)


@asynccontextmanager
async def opening(url: str, loop: Loop) -> AsyncIterator[Send]:
    """Open the connections."""
    async with Redis.from_url(url, protocol=2) as client:
        pool: Any = client.connection_pool
        clients = [await pool.get_connection() for _ in range(_CONNECTIONS)]
        connections = [Connection(each, loop) for each in clients]

        async def send(messages: list[Message]) -> None:
            await min(connections, key=lambda each: len(each.in_flight)).send(messages)

        async with asyncio.TaskGroup() as group:
            hearing = [group.create_task(each.hear()) for each in connections]
            yield send
            for task in hearing:
                task.cancel()


if __name__ == "__main__":
    main(opening)
