"""One connection to Redis: commands go out in bulk, answers come back by their place."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import ResponseError

from pillarbox.bus.handover import DISCONNECTED
from pillarbox.bus.outcome import PublishOutcome
from pillarbox.bus.redis.outcomes import NIL

_CHUNK_BYTES: Final = 131_072
_READ_BYTES: Final = 65_536
_BULK_LIMIT: Final = 536_870_912  # proto-max-bulk-len where it cannot be seen
_LENGTH: Final = b"$"


class Connection:
    """One connection, used by one call at a time.

    The client makes it, with its security; commands and answers pass the client by, because its own
    pipeline costs three times as much for each message.
    """

    def __init__(self, make: Callable[[], AbstractConnection]) -> None:
        self._client: Any = make()  # parts of the client have no types
        self._rest = b""
        self.bulk_limit = _BULK_LIMIT
        self._missing = 0
        self.worn_out = False
        self.end_says: PublishOutcome = DISCONNECTED

    @property
    def usable(self) -> bool:
        """Whether another call may have it: no answer is missing and the server is there."""
        reader = self._client._reader  # noqa: SLF001
        return not (self._missing or self.worn_out or reader is None or reader.at_eof())

    async def open(self) -> None:
        """Connect, or raise within the caller's limit."""
        await self._client.connect()
        try:
            found = await self.ask("CONFIG", "GET", "proto-max-bulk-len")
        except ResponseError:
            return  # An oversized message is then refused by the server, which ends the connection.
        if found:
            self.bulk_limit = int(found[1])

    async def ask(self, *words: str) -> Any:
        """Send one command and return its answer."""
        self._missing += 1
        await self._client.send_command(*words)
        try:
            found = await self._client.read_response()
        except ResponseError:
            self._missing -= 1
            raise
        self._missing -= 1
        return found

    async def send(self, commands: Iterable[bytes]) -> None:
        """Send commands in order, as far as the socket takes them at a time."""
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

    async def answers(self) -> list[bytes]:
        """Return the next answers: an id, `-ERR …`, `:3` or `$-1` each."""
        if self._client._reader is None:  # noqa: SLF001
            raise Disconnected("the connection was closed")
        data = await self._client._reader.read(_READ_BYTES)  # noqa: SLF001
        if not data:
            raise Disconnected("the server closed the connection")
        lines = (self._rest + data).split(b"\r\n")
        self._rest = lines.pop()
        # No answer here holds a line break, so that the lengths before the ids say nothing new.
        found = [line for line in lines if line[:1] != _LENGTH or line == NIL]
        self._missing -= len(found)
        return found

    async def end(self, says: PublishOutcome = DISCONNECTED) -> None:
        """Let go of the socket at once; a call that waits for answers has this one."""
        self.end_says = says
        if (writer := self._client._writer) is not None:  # noqa: SLF001
            # What it holds for a server that reads no more is not wanted.
            writer.transport.abort()
        await self._client.disconnect(nowait=True)

    async def _write(self, commands: list[bytes]) -> None:
        writer = self._client._writer  # noqa: SLF001
        if writer is None:
            raise Disconnected("the connection was closed")
        writer.write(b"".join(commands))
        await writer.drain()
