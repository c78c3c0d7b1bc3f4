"""The reference for NATS: read, publish, acknowledge and settle overlapped, written by hand.

Messages go out in bulk over one connection and answers are matched by number: nats-py's own
`publish_async` makes a future and parses an answer for each message, and is a good deal slower.
One message of a key is in flight, because JetStream stores what follows a message that failed.
"""

import argparse
import asyncio
import time
from collections import deque
from typing import Any, Final

import nats
import psycopg
from nats.aio.msg import Msg

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
from benchmarks.sides.headers import nats_head

_CHUNK: Final = 256


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
        self, client: Any, reads: psycopg.AsyncConnection, writes: psycopg.AsyncConnection
    ) -> None:
        self._client = client
        self._inbox: str = client.new_inbox()
        self._sent = 0
        self._in_flight: dict[int, tuple[str, Batch]] = {}
        self._writes = writes
        self._cursor = reads.cursor(binary=True)
        self._behind: dict[str, deque[Message]] = {}
        self._ready: deque[Message] = deque()
        self._to_send = asyncio.Event()
        self._over = False
        self._acknowledged: asyncio.Queue[Batch | None] = asyncio.Queue()
        self._window = asyncio.Semaphore(BATCHES_IN_HAND)

    async def run(self) -> int:
        """Empty the outbox and return the number of events."""
        events, position = 0, START
        await self._client.subscribe(f"{self._inbox}.*", cb=self._answered)
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
            self._over = True
            self._to_send.set()
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
                self._ready.append((row, batch))
            else:
                behind.append((row, batch))
        self._to_send.set()

    async def _send(self) -> None:
        while not self._over:
            await self._to_send.wait()
            self._to_send.clear()
            while self._ready:
                count = min(_CHUNK, len(self._ready))
                commands = b"".join([self._command(*self._ready.popleft()) for _ in range(count)])
                await self._client._send_command(commands)  # noqa: SLF001 - nothing public is bulk
                await self._client._flush_pending()  # noqa: SLF001

    def _command(self, row: Any, batch: Batch) -> bytes:
        self._sent += 1
        self._in_flight[self._sent] = (row[KEY], batch)
        head, body = nats_head(row), row[PAYLOAD]
        sizes = f"{len(head)} {len(head) + len(body)}"
        command = f"HPUB {row[TOPIC]} {self._inbox}.{self._sent} {sizes}\r\n"
        return b"%b%b%b\r\n" % (command.encode(), head, body)

    async def _answered(self, message: Msg) -> None:
        assert b'"seq"' in message.data, message.data
        assert b'"error"' not in message.data, message.data
        key, batch = self._in_flight.pop(int(message.subject.rpartition(".")[2]))
        behind = self._behind[key]
        if behind:
            self._ready.append(behind.popleft())
            self._to_send.set()
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
    client = await nats.connect(url)
    async with (
        await connect(dsn, autocommit=True) as reads,
        await connect(dsn, autocommit=True) as writes,
    ):
        keep_bytes(reads, "json")
        start = time.perf_counter()
        events = await Loop(client, reads, writes).run()
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
