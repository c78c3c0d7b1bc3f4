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

import _pulsar
import pulsar

from benchmarks.backlog import TOPIC
from benchmarks.sides.by_hand import DEDUP, KEY, PAYLOAD
from benchmarks.sides.headers import header_names, header_values
from benchmarks.sides.overlapped import Loop, Message, Send, main

_GROUPS: Final = 16
_LOOK_SECONDS: Final = 0.005
_NAMES: Final = header_names("ce_")
_OK: Final = _pulsar.Result.Ok
_PRODUCER: Final[dict[str, Any]] = {
    "max_pending_messages": 10_000,
    "batching_type": pulsar.BatchingType.KeyBased,
    "batching_max_messages": 1_000,
    "batching_max_publish_delay_ms": 1_000,
}


class Sender:
    """Send over the client's producer, and look for answers when it calls back or a while later."""

    def __init__(self, producer: Any, loop: Loop, *, dedup: bool) -> None:
        self._producer = producer._producer  # noqa: SLF001 - its wrapper copies each property anew
        self._loop = loop
        self._dedup = dedup
        self._number = 0
        self._in_flight: deque[tuple[dict[Any, Any], Message]] = deque()
        self._events = asyncio.get_running_loop()
        self._woken = False
        self._timer: asyncio.TimerHandle | None = None

    async def send(self, messages: list[Message]) -> None:
        """Send messages and have their batches leave at once."""
        producer = self._producer
        for message in messages:
            slot: dict[Any, Any] = {}
            self._in_flight.append((slot, message))
            producer.send_async(self._message(message[0]), slot.setdefault)
        producer.flush_async(self._wake)
        if self._timer is None:
            self._timer = self._events.call_later(_LOOK_SECONDS, self._look_again)
        await asyncio.sleep(0)

    def _message(self, row: Any) -> Any:
        made = _pulsar.MessageBuilder()
        made.content(row[PAYLOAD])
        made.properties(dict(zip(_NAMES, header_values(row), strict=True)))
        made.partition_key(row[KEY])
        if self._dedup:
            self._number += 1
            made.sequence_id(self._number)
        else:
            made.ordering_key(f"g{crc32(row[KEY].encode()) % _GROUPS}")
        return made.build()

    def _wake(self, result: object) -> None:
        """Have the answers looked at, from a thread of the client."""
        del result
        if not self._woken:
            self._woken = True
            self._events.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        self._woken = False
        while self._in_flight and self._in_flight[0][0]:
            slot, message = self._in_flight.popleft()
            if _OK not in slot:
                self._loop.refused(slot)
                return
            self._loop.answered(message)

    def _look_again(self) -> None:
        # The client does not call back for a flush after which nothing was left to send.
        self._look()
        self._timer = None
        if self._in_flight:
            self._timer = self._events.call_later(_LOOK_SECONDS, self._look_again)


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
