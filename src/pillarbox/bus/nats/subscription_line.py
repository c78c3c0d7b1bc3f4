"""A member's connection to NATS: it may break, and be made anew when the server throws us out."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import nats.errors
from nats.aio.msg import Msg

from pillarbox.bus.nats.connection import Connection
from pillarbox.bus.nats.streams import Streams
from pillarbox.bus.nats.subscription_durables import Durables, Terms

FAILURES: Final = (TimeoutError, OSError, nats.errors.Error)
ACK: Final = b"+ACK"
NAK: Final = b"-NAK"
NAK_LATER: Final = b'-NAK {"delay": 500000000}'
IN_PROGRESS: Final = b"+WPI"
_NO_LIMIT: Final = 0  # a message dropped on the way would break the order


@dataclass(frozen=True, slots=True)
class Ground:
    """What a bus knows of its servers."""

    shown: str
    connect: Callable[[], Connection]
    streams: Callable[[Connection], Streams]
    exposure: Callable[[], list[str]]
    partitions: int | None
    here: bool
    seconds: float
    ack_wait: timedelta


class Line:
    """Speak to the server; what cannot be said while it is away is not said at all."""

    def __init__(self, ground: Ground, terms: Terms) -> None:
        self._ground = ground
        self._terms = terms
        self._connection: Connection | None = None
        self._breaks = 0

    @property
    def stands(self) -> bool:
        """Whether there is a connection; while it is broken it mends itself."""
        return self._connection is not None and not self._connection.ended

    @property
    def client(self) -> Any:
        """The client of the connection that stands."""
        if self._connection is None:
            raise nats.errors.ConnectionClosedError
        return self._connection.client

    @property
    def durables(self) -> Durables:
        """The consumer's durables."""
        return Durables(self.client, self._ground.seconds, self._terms)

    async def open(self) -> None:
        """Connect anew; the caller sets the limit."""
        await self.close()
        connection = self._ground.connect()
        try:
            await connection.open()
        except BaseException:
            await connection.close()
            raise
        self._connection, self._breaks = connection, 0

    async def make_streams(self, topics: Iterable[str]) -> None:
        """Make missing streams, on this machine only."""
        if self._connection is not None and self._ground.here:
            await self._ground.streams(self._connection).create(list(topics))

    def broke(self) -> bool:
        """Tell whether the connection has broken since this was asked last."""
        known, self._breaks = self._breaks, int(self.client.stats["reconnects"])
        return known != self._breaks

    async def listen(self, subject: str, heard: Callable[[Msg], Awaitable[None]]) -> None:
        """Have a function called for each message to a subject."""
        await self.client.subscribe(
            subject, cb=heard, pending_msgs_limit=_NO_LIMIT, pending_bytes_limit=_NO_LIMIT
        )

    async def say(self, subject: str, body: bytes, reply: str = "") -> None:
        """Publish one message, if that is possible now."""
        with suppress(*FAILURES):
            await self.client.publish(subject, body, reply)

    async def answer(self, replies: Iterable[str], what: bytes) -> None:
        """Answer many messages with one write; the public call makes one for each."""
        parts = [b"PUB %b %d\r\n%b\r\n" % (to.encode(), len(what), what) for to in replies]
        if parts and self.stands:
            with suppress(*FAILURES):
                await self.client._send_command(b"".join(parts))  # noqa: SLF001
                await self.client._flush_pending()  # noqa: SLF001

    async def close(self) -> None:
        """Disconnect within a limit."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await asyncio.shield(connection.close())
