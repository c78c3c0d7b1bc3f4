"""The reference for NATS: the overlapped loop, with messages in bulk over one connection.

Answers are matched by number: nats-py's own `publish_async` makes a future and parses an answer for
each message, and is a good deal slower.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import nats
from nats.aio.msg import Msg

from benchmarks.sides.by_hand import PAYLOAD, TOPIC
from benchmarks.sides.headers import nats_head
from benchmarks.sides.overlapped import Loop, Message, Send, main


class Sender:
    """Write commands, and hear the answers in one inbox."""

    def __init__(self, client: Any, loop: Loop) -> None:
        self._client = client
        self._loop = loop
        self._inbox: str = client.new_inbox()
        self._sent = 0
        self._in_flight: dict[int, Message] = {}

    async def subscribe(self) -> None:
        """Listen for answers."""
        await self._client.subscribe(f"{self._inbox}.*", cb=self._answered)

    async def send(self, messages: list[Message]) -> None:
        """Send messages in one piece."""
        commands = b"".join([self._command(message) for message in messages])
        await self._client._send_command(commands)  # noqa: SLF001 - nothing public is bulk
        await self._client._flush_pending()  # noqa: SLF001

    def _command(self, message: Message) -> bytes:
        row, _ = message
        self._sent += 1
        self._in_flight[self._sent] = message
        head, body = nats_head(row), row[PAYLOAD]
        sizes = f"{len(head)} {len(head) + len(body)}"
        command = f"HPUB {row[TOPIC]} {self._inbox}.{self._sent} {sizes}\r\n"
        return b"%b%b%b\r\n" % (command.encode(), head, body)

    async def _answered(self, answer: Msg) -> None:
        if b'"seq"' not in answer.data or b'"error"' in answer.data:
            self._loop.refused(answer.data)
            return
        self._loop.answered(self._in_flight.pop(int(answer.subject.rpartition(".")[2])))


@asynccontextmanager
async def opening(url: str, loop: Loop) -> AsyncIterator[Send]:
    """Connect."""
    client = await nats.connect(url)
    sender = Sender(client, loop)
    await sender.subscribe()
    yield sender.send
    await client.close()


if __name__ == "__main__":
    main(opening)
