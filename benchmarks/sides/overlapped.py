"""The overlapped loop of the references: read, send, acknowledge and settle, written by hand.

One message of a key is in flight, because these brokers store what follows a message that failed.
"""

import argparse
import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import psycopg

from benchmarks.sides.by_hand import (
    BATCHES_IN_HAND,
    KEY,
    READ,
    SETTLE,
    START,
    Position,
    ids_of,
    keep_bytes,
    position_after,
    tell,
)

_CHUNK: Final = 256


class Batch:
    """Rows that are settled together, once all are acknowledged."""

    __slots__ = ("left", "rows")

    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows
        self.left = len(rows)


Message = tuple[Any, Batch]
"""A row, whose text is text and whose JSON is bytes, with its batch."""

Send = Callable[[list[Message]], Awaitable[None]]
"""Hand messages over in bulk; the loop is told of each answer."""


class Loop:
    """One event loop: a reader, a sender and a settler."""

    def __init__(self, reads: psycopg.AsyncConnection, writes: psycopg.AsyncConnection) -> None:
        self._writes = writes
        self._cursor = reads.cursor(binary=True)
        self._behind: dict[str, deque[Message]] = {}
        self._ready: deque[Message] = deque()
        self._to_send = asyncio.Event()
        self._over = False
        self._acknowledged: asyncio.Queue[Batch | str | None] = asyncio.Queue()
        self._window = asyncio.Semaphore(BATCHES_IN_HAND)

    async def run(self, send: Send) -> int:
        """Empty the outbox and return the number of events."""
        events, position = 0, START
        async with asyncio.TaskGroup() as group:
            group.create_task(self._send(send))
            group.create_task(self._settle())
            reading = group.create_task(self._read(position))
            while rows := await reading:
                reading = group.create_task(self._read(position_after(rows)))
                await self._window.acquire()
                events += len(rows)
                self._line_up(Batch(rows))
            for _ in range(BATCHES_IN_HAND):
                await self._window.acquire()
            self._over = True
            self._to_send.set()
            self._acknowledged.put_nowait(None)
        return events

    def answered(self, message: Message) -> None:
        """Let the next message of the key go, and settle a batch that is complete."""
        row, batch = message
        behind = self._behind[row[KEY]]
        if behind:
            self._ready.append(behind.popleft())
            self._to_send.set()
        else:
            del self._behind[row[KEY]]
        batch.left -= 1
        if not batch.left:
            self._acknowledged.put_nowait(batch)
            self._window.release()

    def refused(self, answer: object) -> None:
        """End the loop with what the broker said."""
        self._acknowledged.put_nowait(str(answer))

    async def _read(self, position: Position) -> list[Any]:
        await self._cursor.execute(READ, position, prepare=True)
        return await self._cursor.fetchall()

    def _line_up(self, batch: Batch) -> None:
        for row in batch.rows:
            behind = self._behind.get(row[KEY])
            if behind is None:
                self._behind[row[KEY]] = deque()
                self._ready.append((row, batch))
            else:
                behind.append((row, batch))
        self._to_send.set()

    async def _send(self, send: Send) -> None:
        while not self._over:
            await self._to_send.wait()
            self._to_send.clear()
            while self._ready:
                count = min(_CHUNK, len(self._ready))
                await send([self._ready.popleft() for _ in range(count)])

    async def _settle(self) -> None:
        while (batch := await self._acknowledged.get()) is not None:
            assert isinstance(batch, Batch), batch
            found = await self._writes.execute(SETTLE, (ids_of(batch.rows),), prepare=True)
            assert found.rowcount == len(batch.rows)


Opening = Callable[[str, Loop], AbstractAsyncContextManager[Send]]
"""Connect to the broker of an address."""


async def drain(dsn: str, address: str, opening: Opening) -> None:
    """Empty the outbox and tell how long it took."""
    connect = psycopg.AsyncConnection.connect
    async with (
        await connect(dsn, autocommit=True) as reads,
        await connect(dsn, autocommit=True) as writes,
    ):
        keep_bytes(reads, "json")
        loop = Loop(reads, writes)
        async with opening(address, loop) as send:
            start = time.perf_counter()
            events = await loop.run(send)
            tell(events=events, seconds=time.perf_counter() - start, cpu=time.process_time())


def main(opening: Opening) -> None:
    """Run a reference as a program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("dsn")
    parser.add_argument("address")
    given = parser.parse_args()
    asyncio.run(drain(given.dsn, given.address, opening))
