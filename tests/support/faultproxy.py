"""A TCP proxy of our own that breaks connections on purpose, at a byte or at a message.

    async with FaultProxy("127.0.0.1", 5432) as proxy:
        proxy.plan(Rule(SERVER, Seen(b"COMMIT"), Cut()))
        …  # connect to proxy.host, proxy.port
        await proxy.fired()

A rule watches one direction of each connection. When its trigger is met its fault happens, once:
`before` the bytes that met it are passed on, or right `after`. Without a plan the proxy only
forwards.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import Final, Self, assert_never

from pillarbox.servers.ports import LOOPBACK

LIMIT: Final = timedelta(seconds=10)
_CHUNK: Final = 65_536
_RESET: Final = struct.pack("ii", 1, 0)  # linger for 0 seconds: close() sends RST


class Toward(Enum):
    """The direction of bytes, by the side that they go to."""

    SERVER = "server"
    CLIENT = "client"


SERVER: Final = Toward.SERVER
CLIENT: Final = Toward.CLIENT


@dataclass(frozen=True, slots=True)
class AtOnce:
    """Met by every byte; on a connection that is open already, without one."""


@dataclass(frozen=True, slots=True)
class AfterBytes:
    """Met when this many bytes have come since the rule was planned; it splits at that byte."""

    count: int


@dataclass(frozen=True, slots=True)
class Seen:
    """Met by a pattern, also when it comes in several pieces."""

    pattern: bytes


Trigger = AtOnce | AfterBytes | Seen


@dataclass(frozen=True, slots=True)
class Cut:
    """End the connection on both sides, with RST or in good order."""

    reset: bool = True


@dataclass(frozen=True, slots=True)
class Freeze:
    """Pass nothing more in either direction and keep the connection open, until `thaw()`."""


@dataclass(frozen=True, slots=True)
class Delay:
    """Hold back every further byte of the direction for this long."""

    by: timedelta


@dataclass(frozen=True, slots=True)
class Drop:
    """Swallow every further byte that goes in one direction; the other flows on."""

    toward: Toward


Fault = Cut | Freeze | Delay | Drop


@dataclass(frozen=True, slots=True)
class Rule:
    """A fault, with the direction and the trigger that it waits for."""

    toward: Toward
    trigger: Trigger
    fault: Fault
    after: bool = False
    """Pass the bytes that met the trigger on first; by default they are lost with the fault."""


@dataclass(slots=True)
class _Watch:
    """How far a rule has come on the bytes of one connection."""

    rule: Rule
    tail: bytes = b""
    count: int = 0

    def split(self, chunk: bytes) -> int | None:
        """Return up to where this chunk is innocent, or None if the trigger is not met."""
        match self.rule.trigger:
            case AtOnce():
                return 0
            case AfterBytes(count):
                self.count += len(chunk)
                return None if self.count < count else len(chunk) - (self.count - count)
            case Seen(pattern):
                window = self.tail + chunk
                found = window.find(pattern)
                kept, self.tail = len(self.tail), window[max(0, len(window) - len(pattern) + 1) :]
                return None if found < 0 else max(0, found - kept)
            case other:
                assert_never(other)


@dataclass(eq=False, slots=True)
class _Link:
    """One client's connection with its way to the server."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    flows: dict[Toward, asyncio.Event] = field(
        default_factory=lambda: {side: asyncio.Event() for side in Toward}
    )
    dropped: set[Toward] = field(default_factory=set)
    delays: dict[Toward, timedelta] = field(default_factory=dict)
    watches: list[_Watch] = field(default_factory=list)
    cut: bool = False

    def writer(self, toward: Toward) -> asyncio.StreamWriter:
        return self.server if toward is SERVER else self.client

    def flow(self, on: bool) -> None:
        for gate in self.flows.values():
            gate.set() if on else gate.clear()

    def end(self, *, reset: bool) -> None:
        self.cut = True
        for writer in (self.client, self.server):
            if reset:
                sock: socket.socket | None = writer.get_extra_info("socket")
                if sock is not None:
                    with contextlib.suppress(OSError):
                        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                writer.transport.abort()
            else:
                writer.close()
        self.flow(True)


class FaultProxy:
    """Forward connections to a server, with faults; every wait has a limit."""

    def __init__(
        self, target_host: str, target_port: int, *, port: int = 0, limit: timedelta = LIMIT
    ) -> None:
        self._target = (target_host, target_port)
        self._limit = limit.total_seconds()
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._rules: list[Rule] = []
        self._fired: list[Rule] = []
        self._news = asyncio.Condition()
        self._listener: asyncio.Server | None = None
        self.host, self.port = LOOPBACK, port

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._serve, self.host, self.port)
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._listener is not None
        self._listener.close()
        for link in tuple(self._links):
            link.end(reset=True)
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._limit)

    @property
    def connections(self) -> int:
        """How many connections stand at the moment."""
        return len(self._links)

    def plan(self, *rules: Rule) -> None:
        """Watch for triggers from now on, on connections that stand and on later ones."""
        self._rules.extend(rules)
        for link in self._links:
            link.watches.extend(_Watch(rule) for rule in rules)

    def now(self, fault: Fault, *, toward: Toward = CLIENT) -> None:
        """Break every connection that stands, at once."""
        for link in tuple(self._links):
            self._break(link, fault, toward)

    def thaw(self) -> None:
        """End freezes, drops and delays on the connections that stand, and forget the plan."""
        self._rules.clear()
        for link in self._links:
            link.watches.clear()
            link.dropped.clear()
            link.delays.clear()
            link.flow(True)

    async def fired(self, times: int = 1) -> None:
        """Wait until that many planned faults have happened."""
        await self._until(lambda: len(self._fired) >= times)

    async def connected(self, count: int = 1) -> None:
        """Wait until exactly that many connections stand."""
        await self._until(lambda: len(self._links) == count)

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(self._limit), self._news:
            await self._news.wait_for(condition)

    async def _serve(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(OSError, TimeoutError, asyncio.CancelledError):
                async with asyncio.timeout(self._limit):
                    back, server = await asyncio.open_connection(*self._target)
                async with self._linked(client, server) as link:
                    await self._pump_both(link, reader, back)
        finally:
            self._tasks.discard(task)
            client.close()

    @contextlib.asynccontextmanager
    async def _linked(
        self, client: asyncio.StreamWriter, server: asyncio.StreamWriter
    ) -> AsyncIterator[_Link]:
        link = _Link(client, server)
        link.flow(True)
        link.watches.extend(_Watch(rule) for rule in self._rules)
        self._links.add(link)
        await self._tell()
        try:
            yield link
        finally:
            self._links.discard(link)
            server.close()
            await self._tell()

    async def _pump_both(
        self, link: _Link, reader: asyncio.StreamReader, back: asyncio.StreamReader
    ) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pump(link, SERVER, reader))
            group.create_task(self._pump(link, CLIENT, back))

    async def _pump(self, link: _Link, toward: Toward, source: asyncio.StreamReader) -> None:
        writer = link.writer(toward)
        with contextlib.suppress(ConnectionError):
            while not link.cut and (chunk := await source.read(_CHUNK)):
                await self._pass_on(link, toward, chunk)
        if not link.cut:
            # The end of a stream is news too: it comes in order, or not at all while frozen.
            await link.flows[toward].wait()
            with contextlib.suppress(ConnectionError, RuntimeError, OSError):
                writer.write_eof()

    async def _pass_on(self, link: _Link, toward: Toward, chunk: bytes) -> None:
        watch, place = _first_met(link, toward, chunk)
        if watch is None:
            await self._forward(link, toward, chunk)
            return
        innocent = len(chunk) if watch.rule.after else place
        await self._forward(link, toward, chunk[:innocent])
        link.watches.remove(watch)
        if watch.rule in self._rules:
            self._rules.remove(watch.rule)
        self._break(link, watch.rule.fault, toward)
        self._fired.append(watch.rule)
        await self._tell()
        if not isinstance(watch.rule.fault, Cut):
            await self._forward(link, toward, chunk[innocent:])

    async def _forward(self, link: _Link, toward: Toward, chunk: bytes) -> None:
        if toward in link.delays:
            await asyncio.sleep(link.delays[toward].total_seconds())
        await link.flows[toward].wait()
        if chunk and not link.cut and toward not in link.dropped:
            writer = link.writer(toward)
            writer.write(chunk)
            await writer.drain()

    def _break(self, link: _Link, fault: Fault, toward: Toward) -> None:
        match fault:
            case Cut(reset):
                link.end(reset=reset)
            case Freeze():
                link.flow(False)
            case Delay(by):
                link.delays[toward] = by
            case Drop(dropped):
                link.dropped.add(dropped)
            case other:
                assert_never(other)

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()


def _first_met(link: _Link, toward: Toward, chunk: bytes) -> tuple[_Watch | None, int]:
    """Return the rule that this chunk meets earliest, and where."""
    met = [
        (place, watch)
        for watch in link.watches
        if watch.rule.toward is toward and (place := watch.split(chunk)) is not None
    ]
    if not met:
        return None, 0
    place, watch = min(met, key=lambda pair: pair[0])
    return watch, place
