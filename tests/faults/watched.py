"""Connections and a bus that tell where a step stands, to the statement and to the byte."""

import asyncio
import os
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from psycopg import AsyncCursor
from psycopg.abc import PQGen
from psycopg.waiting import WAIT_R

from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.outcome import PublishOutcome
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.projector.postgres.eager import EagerConnection
from pillarbox.projector.postgres.statements import Statements
from pillarbox.projector.scope import ALL
from pillarbox.schema.tables import DEFAULT_SHARDS

RV = TypeVar("RV")
Reach = Callable[[str], None]

_ACKED_BYTES: Final = 120  # the place of tcpi_bytes_acked in the kernel's tcp_info
_TCP_INFO_SIZE: Final = 256
_STATEMENTS: Final = Statements(schema=None, shards=DEFAULT_SHARDS, scope=ALL, by_row=False)
_CLAIM: Final = _STATEMENTS["claim"]
_READS: Final = {_STATEMENTS[name] for name in ("read", "read_sized", "read_and_claim")}
# The step that is under way between a statement and its answer.
_WITHIN: Final = {
    _STATEMENTS["settle_sent"]: "mid-settle",
    _STATEMENTS["settle_sent_many"]: "mid-settle",
    _STATEMENTS["renew"]: "lease-renewal",
}
# As the statements are sent, without spaces that say nothing.
_NOT_DURABLE: Final = {
    b"'synchronous_commit','on'": b"'synchronous_commit','off'",
    b"durable='on'": b"durable='off'",
}
_CLAIMS: Final = {_STATEMENTS[name] for name in ("claim", "read_and_claim")}


class WatchedConnection(EagerConnection):
    """Tell when a claim is about to follow its read, and when a statement waits for its answer."""

    reach: Reach
    durable = True
    pause = 0.0  # before each read, for a tail of commits that nobody has written to disk yet

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.cursor_factory = WatchedCursor
        self.prepared: set[bytes] = set()
        self.within: str | None = None

    async def wait(
        self,
        gen: PQGen[RV],
        interval: float = 0.1,
        timeout: float | None = None,  # noqa: ASYNC109 - psycopg's signature
    ) -> RV:
        """Perform a statement."""
        if self.within is not None:
            gen = _told_when_sent(gen, self.reach, self.within)
        return await super().wait(gen, interval, timeout)


class WatchedCursor(AsyncCursor[Any]):
    """Know each statement by its text."""

    async def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        """Perform a statement; one that is new to the connection is prepared first, untold."""
        connection = self.connection
        assert isinstance(connection, WatchedConnection)
        if query in _READS:
            await asyncio.sleep(connection.pause)
        if query == _CLAIM:
            connection.reach("after-read")
        if query in connection.prepared:
            connection.within = _WITHIN.get(query)
        try:
            said = query if connection.durable else not_durable(query)
            return await super().execute(said, params, **options)
        finally:
            connection.prepared.add(query)
            connection.within = None


def _told_when_sent(gen: PQGen[RV], reach: Reach, step: str) -> PQGen[RV]:
    """Tell once, when all of the statement has left and nothing of its answer has come."""
    told = False
    try:
        wanted = next(gen)
        while True:
            if wanted == WAIT_R and not told:
                told = True
                reach(step)
            ready = yield wanted
            wanted = gen.send(ready)
    except StopIteration as end:
        result: RV = end.value
        return result


def not_durable(query: Any) -> Any:
    """Break the claim: its commit does not wait for the disk."""
    if isinstance(query, bytes):
        for durable, hasty in _NOT_DURABLE.items():
            assert query not in _CLAIMS or durable in query, "the claim says it differently"
            query = query.replace(durable, hasty)
    return query


class WatchedBus:
    """Pass everything on; tell when a batch has left and its answer has not come.

    A batch has left when the other side's kernel has acknowledged as many bytes as it has. Only a
    batch that is alone on its way is looked at: the bytes are surely its own.
    """

    def __init__(self, bus: MessageBus, url: str, reach: Reach) -> None:
        self._bus, self._reach = bus, reach
        self._port = urlsplit(url).port
        self._calls = self._flying = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    async def publish(
        self, batch: Sequence[MessageEnvelope], *, one_by_one: bool = False
    ) -> Sequence[PublishOutcome]:
        """Hand a batch over."""
        self._calls += 1
        self._flying += 1
        try:
            if self._flying > 1:
                return await self._bus.publish(batch, one_by_one=one_by_one)
            return await self._publish(batch, one_by_one=one_by_one)
        finally:
            self._flying -= 1

    async def _publish(
        self, batch: Sequence[MessageEnvelope], *, one_by_one: bool
    ) -> Sequence[PublishOutcome]:
        calls, size = self._calls, sum(len(envelope.body() or b"") for envelope in batch)
        with connections_to(self._port) as sockets:
            before = _acked(sockets)
            answer = asyncio.ensure_future(self._bus.publish(batch, one_by_one=one_by_one))
            try:
                while not answer.done() and self._calls == calls:
                    if size and _acked(sockets) - before >= size:
                        self._reach("after-send")
                        break
                    await asyncio.sleep(0)
                return await answer
            finally:
                answer.cancel()


@contextmanager
def connections_to(port: int | None) -> Iterator[list[socket.socket]]:
    """Find the connections of this process to a server on this machine."""
    found: list[socket.socket] = []
    for file in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the folder's own file is gone by now
            if str(file.readlink()).startswith("socket:"):
                found.append(socket.socket(fileno=os.dup(int(file.name))))
    try:
        yield [one for one in found if _peer(one) == port]
    finally:
        for one in found:
            one.close()


def _peer(one: socket.socket) -> int | None:
    try:
        return int(one.getpeername()[1])
    except (OSError, IndexError, ValueError):
        return None


def _acked(sockets: Sequence[socket.socket]) -> int:
    infos = (one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_SIZE) for one in sockets)
    return sum(struct.unpack_from("Q", info, _ACKED_BYTES)[0] for info in infos)
