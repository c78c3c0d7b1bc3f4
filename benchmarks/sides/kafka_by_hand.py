"""The reference for Kafka: read, produce, acknowledge and settle overlapped, written by hand.

Threads, because their waits cost less than an event loop's. The order of a key comes from one
idempotent producer.
"""

import argparse
import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import psycopg
from confluent_kafka import Producer

from benchmarks.sides.by_hand import (
    BATCHES_IN_HAND,
    KEY,
    PAYLOAD,
    READ,
    SETTLE,
    START,
    TOPIC,
    ids_of,
    keep_bytes,
    position_after,
    tell,
)
from benchmarks.sides.headers import kafka_headers

_PRODUCER: Final = {
    "acks": "all",
    "enable.idempotence": True,
    "partitioner": "murmur2_random",
    "linger.ms": 5,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 1_000_000,
}
_POLL_SECONDS: Final = 0.05
_LIMIT: Final = 600.0


class Loop:
    """Three threads and the caller's: one reads, one settles, one hears acknowledgements."""

    def __init__(self, dsn: str, bootstrap: str) -> None:
        self._dsn = dsn
        self._producer = Producer({"bootstrap.servers": bootstrap, **_PRODUCER})
        self._producer.list_topics(timeout=10)
        self._read: queue.Queue[list[Any]] = queue.Queue(maxsize=2)
        self._acknowledged: queue.Queue[list[Any] | None] = queue.Queue()
        self._window = threading.Semaphore(BATCHES_IN_HAND)
        self._done = threading.Event()

    def run(self) -> int:
        """Empty the outbox and return the number of events."""
        events = 0
        with ThreadPoolExecutor(3) as pool:
            settling = pool.submit(self._settle)
            polling = pool.submit(self._poll)
            reading = pool.submit(self._fetch)
            while rows := self._read.get(timeout=_LIMIT):
                events += len(rows)
                self._produce(rows)
            for _ in range(BATCHES_IN_HAND):
                self._window.acquire(timeout=_LIMIT)
            self._acknowledged.put(None)
            settling.result()
            self._done.set()
            reading.result()
            polling.result()
        return events

    def _fetch(self) -> None:
        position = START
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            keep_bytes(connection, "text", "varchar", "json")
            cursor = connection.cursor(binary=True)
            while rows := cursor.execute(READ, position, prepare=True).fetchall():
                self._read.put(rows)
                position = position_after(rows)
        self._read.put([])

    def _produce(self, rows: list[Any]) -> None:
        self._window.acquire(timeout=_LIMIT)
        left = len(rows)

        def answered(error: object, message: object) -> None:
            nonlocal left
            del message
            assert error is None, error
            left -= 1
            if not left:
                self._acknowledged.put(rows)
                self._window.release()

        produce = self._producer.produce
        topic = rows[0][TOPIC].decode()
        for row in rows:
            produce(topic, row[PAYLOAD], row[KEY], headers=kafka_headers(row), on_delivery=answered)

    def _poll(self) -> None:
        while not self._done.is_set():
            self._producer.poll(_POLL_SECONDS)

    def _settle(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            while (rows := self._acknowledged.get(timeout=_LIMIT)) is not None:
                found = connection.execute(SETTLE, (ids_of(rows),), prepare=True)
                assert found.rowcount == len(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dsn")
    parser.add_argument("bootstrap")
    given = parser.parse_args()

    loop = Loop(given.dsn, given.bootstrap)
    start = time.perf_counter()
    events = loop.run()
    tell(events=events, seconds=time.perf_counter() - start, cpu=time.process_time())


if __name__ == "__main__":
    main()
