"""One connection to RabbitMQ, with the channel that publishes over it."""

import asyncio
import itertools
import logging
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final

from aiormq import Connection as Client
from aiormq.connection import TCPTransportFactory, TLSTransportFactory, TransportFactory
from yarl import URL

from pillarbox.bus.handover import CLOSED, DISCONNECTED
from pillarbox.bus.outcome import PublishOutcome
from pillarbox.bus.rabbitmq.channel import PublishingChannel
from pillarbox.bus.rabbitmq.leaving import leavable
from pillarbox.errors import InvalidConfig

_log = logging.getLogger("pillarbox.bus.rabbitmq")

_SCHEMES: Final = {"amqp": "amqp", "rabbitmq": "amqp", "amqps": "amqps"}
_LOGIN: Final = frozenset({"user", "password"})
_HEARTBEAT_SECONDS: Final = 5
_CLOSE_SECONDS: Final = 2.0
_FIRST_NUMBER: Final = 1

Wrap = Callable[[asyncio.StreamReader], asyncio.StreamReader]
"""Put something between the client and what it reads."""


def address_of(url: str) -> URL:
    """Return the address that the client is given, or raise without repeating a password."""
    scheme, _, rest = url.partition("://")
    remedy = "write amqp://user:password@host:port/vhost, or amqps://…"
    if scheme.lower() not in _SCHEMES:
        raise InvalidConfig("bus", "is no address of RabbitMQ", remedy)
    try:
        address = URL(f"{_SCHEMES[scheme.lower()]}://{rest}")
    except ValueError:
        raise InvalidConfig("bus", "is no address that can be read", remedy) from None
    if not address.host:
        raise InvalidConfig("bus", "names no server", remedy)
    # A broker that says nothing for three of them is gone.
    return address.update_query({"heartbeat": str(_HEARTBEAT_SECONDS)} | dict(address.query))


def verifies(address: URL, options: Mapping[str, Any]) -> bool:
    """Tell whether the certificate of the broker is held against its name."""
    context: ssl.SSLContext | None = options.get("context")
    if context is None:
        return address.query.get("no_verify_ssl", "0") == "0"
    return context.check_hostname and context.verify_mode is ssl.CERT_REQUIRED


def _with_login(address: URL, options: Mapping[str, Any]) -> URL:
    """Put user and password into an address; callables are asked, once for each connection."""
    for name in _LOGIN & options.keys():
        given = options[name]
        try:
            text = given() if callable(given) else given
        except Exception as error:
            kind = type(error).__name__
            raise ConnectionError(f"the credentials could not be read: {kind}") from error
        address = address.with_user(text) if name == "user" else address.with_password(text)
    return address


def free_number(client: Client) -> int:
    """Return a number that no channel of a connection has."""
    taken = client.channels
    return next(number for number in itertools.count(_FIRST_NUMBER) if number not in taken)


class Connection:
    """A connection; when its channel is closed, a new one is opened on it."""

    def __init__(
        self, address: URL, exchange: str, options: Mapping[str, Any], wrap: Wrap | None = None
    ) -> None:
        self._transport = _Transport(
            TLSTransportFactory() if address.scheme == "amqps" else TCPTransportFactory(), wrap
        )
        others = {name: value for name, value in options.items() if name not in _LOGIN}
        properties = {"connection_name": "pillarbox", **options.get("client_properties", {})}
        self._client = Client(
            _with_login(address, options),
            **{**others, "client_properties": properties},
            transport_factory=self._transport,
        )
        self._exchange = exchange
        self._channel: PublishingChannel | None = None
        self.ended = False

    @property
    def client(self) -> Client:
        """The client of aiormq, for exchanges and queues."""
        return self._client

    async def open(self) -> None:
        """Connect, or raise within the caller's limit."""
        await leavable(self._client.connect())
        self._client.closing.add_done_callback(self._broken)

    async def channel(self) -> tuple[PublishingChannel, bool]:
        """Return the channel that takes messages, and whether it is new."""
        last = self._channel
        if last is not None and not last.spent:
            return last, False
        if last is not None and not last.ended:
            last.end(CLOSED)
            await leavable(last.close())
        limit = None if last is None else last.size_limit
        number = free_number(self._client)
        made = PublishingChannel(
            self._client, number, self._transport.opened, self._exchange, limit
        )
        self._client.channels[number] = made
        await leavable(made.open())
        self._channel = made
        if self.ended:
            made.end(CLOSED)
        return made, True

    def end(self, rest: PublishOutcome) -> None:
        """Give every message without an answer this one and use the connection no more."""
        self.ended = True
        if self._channel is not None:
            self._channel.end(rest)

    async def close(self) -> None:
        """Let go of the client within a limit."""
        self.end(CLOSED)
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                if self._client.is_opened:
                    await leavable(self._client.close())
        except TimeoutError:
            _log.warning("rabbitmq_close_timed_out")
        finally:
            # A broker that reads no more would keep the socket open; what it holds is not wanted.
            self._transport.abort()

    def _broken(self, _: asyncio.Future[None]) -> None:
        if not self.ended:
            _log.warning("rabbitmq_disconnected")
        self.end(DISCONNECTED)


class _Transport(TransportFactory):
    """Connect as the client does, and keep the writer."""

    def __init__(self, factory: TransportFactory, wrap: Wrap | None) -> None:
        self._factory = factory
        self._wrap = wrap
        self._writer: asyncio.StreamWriter | None = None

    @property
    def opened(self) -> asyncio.StreamWriter:
        """The writer of the connection, once it stands."""
        if self._writer is None:
            raise ConnectionError("the connection does not stand")
        return self._writer

    async def create(
        self, url: URL, **kwargs: Any
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open the socket."""
        reader, self._writer = await self._factory.create(url, **kwargs)
        return (reader if self._wrap is None else self._wrap(reader)), self._writer

    def abort(self) -> None:
        """Close the socket at once, whatever it still holds."""
        if self._writer is not None:
            self._writer.transport.abort()
