"""The reference for Pulsar: the overlapped loop, with one producer and callbacks.

Batched, or numbered and unbatched where the address asks for it. A callback is the method of a dict,
so that no Python code runs in the client's threads, which must hold the interpreter for each one.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final
from zlib import crc32

import pulsar

from benchmarks.backlog import TOPIC
from benchmarks.sides.by_hand import DEDUP, KEY, PAYLOAD
from benchmarks.sides.headers import header_names, header_values
from benchmarks.sides.overlapped import Loop, Message, Send, main

_GROUPS: Final = 16
_LOOK_SECONDS: Final = 0.002
_NAMES: Final = header_names("ce_")
_PRODUCER: Final[dict[str, Any]] = {
    "max_pending_messages": 10_000,
    "batching_type": pulsar.BatchingType.KeyBased,
    "batching_max_messages": 1_000,
    "batching_max_publish_delay_ms": 2,
}


class Sender:
    """Send over the client's producer, and look for answers every few milliseconds."""

    def __init__(self, producer: Any, loop: Loop, *, dedup: bool) -> None:
        self._producer = producer
        self._loop = loop
        self._dedup = dedup
        self._number = 0
        self._in_flight: deque[tuple[dict[Any, Any], Message]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    async def send(self, messages: list[Message]) -> None:
        """Hand messages to the client."""
        for message in messages:
            row, slot = message[0], dict[Any, Any]()
            self._in_flight.append((slot, message))
            self._number += 1
            group = f"g{crc32(row[KEY].encode()) % _GROUPS}"
            self._producer.send_async(
                row[PAYLOAD],
                slot.setdefault,
                properties=dict(zip(_NAMES, header_values(row), strict=True)),
                partition_key=row[KEY],
                ordering_key=None if self._dedup else group,
                sequence_id=self._number if self._dedup else None,
            )
        if self._timer is None:
            self._look_again()
        await asyncio.sleep(0)

    def _look(self) -> None:
        while self._in_flight and self._in_flight[0][0]:
            slot, message = self._in_flight.popleft()
            if pulsar.Result.Ok not in slot:
                self._loop.refused(slot)
                return
            self._loop.answered(message)

    def _look_again(self) -> None:
        self._look()
        self._timer = None
        if self._in_flight:
            events = asyncio.get_running_loop()
            self._timer = events.call_later(_LOOK_SECONDS, self._look_again)


@asynccontextmanager
async def opening(address: str, loop: Loop) -> AsyncIterator[Send]:
    """Connect and open the producer."""
    dedup = address.endswith(DEDUP)
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(address.removesuffix(DEDUP), logger=logger)
    name = f"by-hand-{secrets.token_hex(6)}" if dedup else None
    producer = client.create_producer(TOPIC, name, batching_enabled=not dedup, **_PRODUCER)
    yield Sender(producer, loop, dedup=dedup).send
    client.close()


if __name__ == "__main__":
    main(opening)
