"""The client of nats-py, which tells a server nothing before TLS stands where it is wanted."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import nats.errors
from nats.aio.client import Client
from nats.aio.transport import TcpTransport

from pillarbox.bus.wire_text import wire_text

_TLS: Final = "tls"
_HEAD: Final = b"NATS/1.0\r\n"


class Cancellations:
    """Notice a cancellation that the client swallows: asyncio delivers each only once.

    Without this a limit that comes in a bad moment would never end the wait.
    """

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self._before = self._count()

    def pass_on(self) -> None:
        """Raise what came since, in the task that was asked to end."""
        if asyncio.current_task() is self._task and self._count() > self._before:
            raise asyncio.CancelledError

    def _count(self) -> int:
        return 0 if self._task is None else self._task.cancelling()


class GuardedClient(Client):
    """Connect as nats-py does, but never without TLS because the other side does not ask for it.

    Whoever can change the server's greeting could have the client log in in plain text otherwise.
    """

    def __init__(self, servers: Sequence[str], options: Mapping[str, Any]) -> None:
        super().__init__()
        self._wants_tls = wants_tls(servers, options)

    def _connect_command(self) -> bytes:
        # The last step before user and password go out, at the first connection and at later ones.
        if self._wants_tls and not self._encrypted():
            raise nats.errors.Error("the server offers no TLS, so it was told nothing")
        try:
            return super()._connect_command()
        except Exception as error:
            # A callable of the user's; the client survives only errors of its own kind.
            kind = type(error).__name__
            raise nats.errors.Error(f"the credentials could not be read: {kind}") from error

    async def _process_headers(self, headers: bytes | None) -> dict[str, str] | None:
        # The client's own way has one sign for all bytes that are no text: two ids would become one.
        if headers is not None and headers.startswith(_HEAD):
            return headers_of(headers)
        found: dict[str, str] | None = await super()._process_headers(headers)
        return found

    def _encrypted(self) -> bool:
        transport: Any = self._transport
        if not isinstance(transport, TcpTransport):
            return True  # a WebSocket with TLS has TLS from its first byte
        writer: Any = transport._io_writer  # noqa: SLF001
        return writer.get_extra_info("ssl_object") is not None


def headers_of(block: bytes) -> dict[str, str]:
    """Read a block of headers; of several with one name the last counts."""
    lines = wire_text(block.removeprefix(_HEAD)).split("\r\n")
    parts = [line.partition(":") for line in lines]
    return {name: value.strip(" ") for name, colon, value in parts if colon}


def wants_tls(servers: Sequence[str], options: Mapping[str, Any]) -> bool:
    """Tell whether the caller has asked for TLS, by the address or by a context."""
    return "tls" in options or any(_scheme(server) in {_TLS, "wss"} for server in servers)


def _scheme(server: str) -> str:
    return server.partition("://")[0].lower()
