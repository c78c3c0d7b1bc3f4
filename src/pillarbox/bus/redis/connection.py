"""One connection to Redis: commands go out in bulk, answers come back by their place."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import RedisError, ResponseError

from pillarbox.bus.handover import DISCONNECTED
from pillarbox.bus.outcome import PublishOutcome
from pillarbox.bus.redis.outcomes import NIL

_CHUNK_BYTES: Final = 131_072
_BULK_LIMIT: Final = 536_870_912  # proto-max-bulk-len where it cannot be seen
_LENGTH: Final = b"$"


class Connection(asyncio.Protocol):
    """One connection, used by one call at a time.

    The client opens it, with its security. Then commands and answers pass the client by: its own
    pipeline costs three times as much for each message, and loses the answers that stand before a
    break.
    """

    def __init__(self, client: AbstractConnection) -> None:
        self._client: Any = client  # Its parts have no types.
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._done: asyncio.Future[None] | None = None
        self._take: Callable[[bytes], None] = _unasked
        self._busy = False
        self._missing = 0
        self._rest = b""
        self._lost = False
        self.bulk_limit = _BULK_LIMIT
        self.worn_out = False
        self.end_says: PublishOutcome = DISCONNECTED

    @property
    def usable(self) -> bool:
        """Whether another call may have it: no answer is missing and the server is there."""
        return not (self._lost or self.worn_out or self._busy)

    async def open(self) -> None:
        """Connect, or raise within the caller's limit."""
        await reach(self._client)
        try:
            await self._client.send_command("CONFIG", "GET", "proto-max-bulk-len")
            found = await self._client.read_response()
        except ResponseError:
            found = None  # An oversized message then makes the server end the connection.
        if found:
            self.bulk_limit = int(found[1])
        transport: asyncio.Transport = self._client._writer.transport  # noqa: SLF001
        transport.set_protocol(self)
        self._transport = transport
        self._writable.set()

    async def exchange(self, commands: Iterable[bytes], take: Callable[[bytes], None]) -> None:
        """Send commands in order and pass on each answer: an id, `-ERR …`, `:3` or `$-1`.

        Answers that come before a break are passed on; then the break is raised.
        """
        self._take, self._busy = take, True
        waiting: list[bytes] = []
        size = 0
        for command in commands:
            self._missing += 1
            waiting.append(command)
            size += len(command)
            if size >= _CHUNK_BYTES:
                await self._write(waiting)
                waiting, size = [], 0
        await self._write(waiting)
        if self._missing:
            if self._lost:
                raise _broken()
            self._done = asyncio.get_running_loop().create_future()
            await self._done
        self._take, self._busy = _unasked, False

    async def end(self, says: PublishOutcome = DISCONNECTED) -> None:
        """Let go of the socket at once; a call that waits for answers has this one."""
        self.end_says = says
        await let_go(self._client)

    def data_received(self, data: bytes) -> None:
        """Pass on the answers that are complete."""
        lines = (self._rest + data).split(b"\r\n")
        self._rest = lines.pop()
        for line in lines:
            # No answer here holds a line break, so that the length before an id says nothing new.
            if line[:1] != _LENGTH or line == NIL:
                self._missing -= 1
                self._take(line)
        if not (self._missing or self._done is None or self._done.done()):
            self._done.set_result(None)

    def connection_lost(self, _: Exception | None) -> None:
        """Wake the call that waits, if there is one."""
        self._lost = True
        self._writable.set()
        if self._done is not None and not self._done.done():
            self._done.set_exception(_broken())

    def pause_writing(self) -> None:
        """Hold back what the socket does not take."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Go on with sending."""
        self._writable.set()

    async def _write(self, commands: list[bytes]) -> None:
        if self._lost or self._transport is None:
            raise _broken()
        self._transport.write(b"".join(commands))
        await self._writable.wait()


async def reach(client: Any) -> None:
    """Let the client connect and log in; whatever fails is a failure of the client's kinds."""
    try:
        await client.connect()
    except (OSError, RedisError):
        raise
    except Exception as error:
        # A provider of the user's, whose words may tell a secret.
        kind = type(error).__name__
        raise Disconnected(f"the credentials could not be read: {kind}") from error


async def let_go(client: Any) -> None:
    """Close the socket of a client at once."""
    if (writer := client._writer) is not None:  # noqa: SLF001
        # What it holds for a server that reads no more is not wanted, nor the server's word that
        # TLS has ended.
        writer.transport.abort()
    await client.disconnect(nowait=True)


def _broken() -> Disconnected:
    return Disconnected("the connection broke")


def _unasked(answer: bytes) -> None:
    raise Disconnected(f"an answer that nobody asked for: {answer[:32]!r}")
