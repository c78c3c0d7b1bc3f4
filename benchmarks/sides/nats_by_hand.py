"""The reference for NATS: read, publish, acknowledge and settle overlapped, written by hand.

`publish_async` with a wide window; one message of a key in flight, because JetStream stores what
follows a message that failed.
"""

import argparse
import asyncio
import time
from collections import deque
from functools import partial
from typing import Any, Final

import nats
import psycopg
from nats.js.client import JetStreamContext

from benchmarks.sides.by_hand import (
    BATCHES_IN_HAND,
    KEY,
    PAYLOAD,
    READ,
    SETTLE,
    START,
    TOPIC,
    Position,
    ids_of,
    keep_bytes,
    position_after,
    tell,
)
from benchmarks.sides.headers import nats_headers

_WINDOW: Final = 4_000
_FLUSH_BYTES: Final = 4_194_304


class Batch:
    """Rows that are settled together, once all are acknowledged."""

    __slots__ = ("left", "rows")

    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows
        self.left = len(rows)


Message = tuple[Any, Batch]


class Loop:
    """One event loop: a reader, a sender and a settler."""

    def __init__(
        self, js: JetStreamContext, reads: psycopg.AsyncConnection, writes: psycopg.AsyncConnection
    ) -> None:
        self._js = js
        self._writes = writes
        self._cursor = reads.cursor(binary=True)
        self._behind: dict[str, deque[Message]] = {}
        self._ready: asyncio.Queue[Message | None] = asyncio.Queue()
        self._acknowledged: asyncio.Queue[Batch | None] = asyncio.Queue()
        self._window = asyncio.Semaphore(BATCHES_IN_HAND)

    async def run(self) -> int:
        """Empty the outbox and return the number of events."""
        events, position = 0, START
        async with asyncio.TaskGroup() as group:
            group.create_task(self._send())
            group.create_task(self._settle())
            reading = group.create_task(self._read(position))
            while rows := await reading:
                reading = group.create_task(self._read(position_after(rows)))
                await self._window.acquire()
                events += len(rows)
                self._line_up(Batch(rows))
            for _ in range(BATCHES_IN_HAND):
                await self._window.acquire()
            self._ready.put_nowait(None)
            self._acknowledged.put_nowait(None)
        return events

    async def _read(self, position: Position) -> list[Any]:
        await self._cursor.execute(READ, position, prepare=True)
        return await self._cursor.fetchall()

    def _line_up(self, batch: Batch) -> None:
        for row in batch.rows:
            behind = self._behind.get(row[KEY])
            if behind is None:
                self._behind[row[KEY]] = deque()
                self._ready.put_nowait((row, batch))
            else:
                behind.append((row, batch))

    async def _send(self) -> None:
        while (message := await self._ready.get()) is not None:
            row, batch = message
            answer = await self._js.publish_async(
                row[TOPIC], row[PAYLOAD], headers=nats_headers(row)
            )
            answer.add_done_callback(partial(self._answered, row[KEY], batch))

    def _answered(self, key: str, batch: Batch, done: asyncio.Future[Any]) -> None:
        done.result()
        behind = self._behind[key]
        if behind:
            self._ready.put_nowait(behind.popleft())
        else:
            del self._behind[key]
        batch.left -= 1
        if not batch.left:
            self._acknowledged.put_nowait(batch)
            self._window.release()

    async def _settle(self) -> None:
        while (batch := await self._acknowledged.get()) is not None:
            found = await self._writes.execute(SETTLE, (ids_of(batch.rows),), prepare=True)
            assert found.rowcount == len(batch.rows)


async def drain(dsn: str, url: str) -> None:
    """Empty the outbox and tell how long it took."""
    connect = psycopg.AsyncConnection.connect
    client = await nats.connect(url, pending_size=_FLUSH_BYTES)
    js = client.jetstream(publish_async_max_pending=_WINDOW)
    async with (
        await connect(dsn, autocommit=True) as reads,
        await connect(dsn, autocommit=True) as writes,
    ):
        keep_bytes(reads, "json")
        start = time.perf_counter()
        events = await Loop(js, reads, writes).run()
        tell(events=events, seconds=time.perf_counter() - start, cpu=time.process_time())
    await client.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dsn")
    parser.add_argument("url")
    given = parser.parse_args()
    asyncio.run(drain(given.dsn, given.url))


if __name__ == "__main__":
    main()
