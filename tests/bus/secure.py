"""What the tests of transport security share: a client's papers, and somebody in the middle."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.subscription import SubscribingBus
from pillarbox.servers import Login, TlsFiles
from pillarbox.servers.broker import Broker
from pillarbox.servers.ports import LOOPBACK

_CHUNK = 65_536

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Papers:
    """Whom a client trusts and what it shows; without an authority it trusts those of the system."""

    login: Callable[[], Login]
    authority: Path | None
    client: TlsFiles | None
    careless: bool = False
    """Whether the client takes any certificate at all."""

    def context(self) -> ssl.SSLContext:
        made = ssl.create_default_context(cafile=self.authority)
        if self.careless:
            made.check_hostname = False
            made.verify_mode = ssl.CERT_NONE
        if self.client is not None:
            made.load_cert_chain(self.client.certificate, self.client.key)
        return made


class ListenedTo(MessageBus, SubscribingBus, Protocol):
    """A bus that can also be listened to, as all of ours."""


class SecureRig(Protocol):
    """Make a broker that asks for papers, and buses that show some."""

    greets: bool
    """Whether the broker speaks a line in plain text before TLS begins."""

    tells_why: bool
    """Whether the client says that a certificate was at fault."""

    def server(self, tls: TlsFiles, login: Login) -> Broker: ...

    def bus(self, port: int, papers: Papers, *, limit: timedelta) -> ListenedTo: ...

    async def count(self, port: int, papers: Papers, topic: str) -> int:
        """Count the messages of a topic that the broker has stored."""
        ...


@asynccontextmanager
async def listening(serve: Serve, shown: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Serve connections on a port, over TLS if something is shown.

    At the end none is left, nor one that is just coming.
    """
    loop, tasks, taken = (
        asyncio.get_running_loop(),
        list[asyncio.Task[None]](),
        list[socket.socket](),
    )

    async def attend(connection: socket.socket) -> None:
        reader, made = asyncio.StreamReader(), list[asyncio.StreamWriter]()
        try:
            await loop.connect_accepted_socket(
                lambda: asyncio.StreamReaderProtocol(reader, lambda _, writer: made.append(writer)),
                connection,
                ssl=shown,
            )
        except OSError:
            return  # The client has refused what it was shown.
        try:
            with suppress(OSError):  # A client may reset its connection whenever it likes.
                await serve(reader, made[0])
        finally:
            made[0].transport.abort()

    def accept() -> None:
        with suppress(OSError):
            taken.append(listener.accept()[0])
            tasks.append(loop.create_task(attend(taken[-1])))

    with socket.create_server((LOOPBACK, 0)) as listener:
        listener.setblocking(False)
        loop.add_reader(listener, accept)
        try:
            yield listener.getsockname()[1]
        finally:
            loop.remove_reader(listener)
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0)  # Transports let go of their sockets a turn later.
            for connection in taken:
                connection.close()
    for error in ended:
        if isinstance(error, Exception):
            raise error


@asynccontextmanager
async def in_the_middle(
    server: Broker, shows: TlsFiles, client: TlsFiles, *, greets: bool
) -> AsyncIterator[int]:
    """Read along between a client and a server, with a certificate of one's own; yield the port."""
    shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    shown.load_cert_chain(shows.certificate, shows.key)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward = await asyncio.open_connection(LOOPBACK, server.port)
        try:
            if greets:
                writer.write(await onward[0].readline())
                await writer.start_tls(shown)
            await onward[1].start_tls(client.checking())
            await asyncio.gather(_pump(reader, onward[1]), _pump(onward[0], writer))
        except OSError:
            pass  # The client has refused us.
        finally:
            onward[1].transport.abort()

    async with listening(serve, None if greets else shown) as port:
        yield port


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    finally:
        writer.transport.abort()
