"""Publish to NATS JetStream."""

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import nats.errors

from pillarbox.bus.handover import CLOSED, NO_ANSWER, Handover
from pillarbox.bus.loopback import all_loopback, host_of, plaintext_weakness, unverified_weakness
from pillarbox.bus.message_bus import Capabilities
from pillarbox.bus.nats.client import wants_tls
from pillarbox.bus.nats.connection import Connection, WireMessage
from pillarbox.bus.nats.streams import Streams
from pillarbox.bus.nats.subscription import NatsSubscription
from pillarbox.bus.nats.subscription_line import Ground
from pillarbox.bus.odd_text import ENCODING_ERRORS, refuse_odd_text
from pillarbox.bus.one_by_one import publish_one_by_one
from pillarbox.bus.outcome import PublishOutcome, Refused, Unavailable
from pillarbox.bus.partition import check_partitions, partition_for
from pillarbox.bus.subscription import Subscription, SubscriptionRequest
from pillarbox.errors import BusUnreachable, InvalidTopic
from pillarbox.event.cloudevents import (
    ContentMode,
    Headers,
    binary_headers,
    is_structured,
    structured_body,
    structured_headers,
)
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.event.rules import NATS, check_topic

_ANSWER_BY: Final = 0.9  # of the limit, so that `publish` has returned when it is over
_REACH_BY: Final = 0.4
_FAILURES: Final = (TimeoutError, OSError, nats.errors.Error)

_headers: Final = binary_headers("ce-", percent=True, content_type="ce-datacontenttype")


class NatsMessageBus:
    """Publish to NATS JetStream; the server removes duplicates by tenant and event id.

        bus = NatsMessageBus("nats://localhost:4222")

    `options` are those of nats-py's `connect`, for security and tuning; `user`, `password` and `token`
    may be callables, which are asked at each connection. With `tls://` nothing is said to a server
    without TLS. With `partitions` a topic is spread over that many subjects by key. Missing streams
    are made by `apply`, and by themselves when all servers are on this machine: one for each first
    word of a topic (`shop.order` is kept by the stream `shop`), or the one named by `stream`.
    Duplicates are removed within the stream's `duplicate_window`, two minutes by default. The
    messages of a consumer that died go to another one after `ack_wait`.
    """

    def __init__(
        self,
        url: str,
        *,
        stream: str | None = None,
        partitions: int | None = None,
        publish_timeout: timedelta = timedelta(seconds=10),
        content_mode: ContentMode = "binary",
        ack_wait: timedelta = timedelta(seconds=15),
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._servers = [part.strip() for part in url.split(",")]
        hosts = [host_of(part.partition("://")[2] or part) for part in self._servers]
        self._shown = ",".join(f"nats://{host}" for host in hosts)
        self._stream = stream
        self._partitions = check_partitions(partitions)
        self._seconds = publish_timeout.total_seconds()
        self._mode: ContentMode = content_mode
        self._ack_wait = ack_wait
        self._options = dict(options or {})
        self._complaint = ""
        self._makes_streams = all_loopback(hosts)
        self._capabilities = Capabilities(NATS, publish_timeout, deduplicates=True)
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._looking = asyncio.Lock()
        self._kept: set[str] = set()
        self._farewells: set[asyncio.Task[None]] = set()
        self._closings = 0

    @property
    def capabilities(self) -> Capabilities:
        """What this bus can do."""
        return self._capabilities

    async def start(self) -> Sequence[str]:
        """Connect; return which streams would lose acknowledged events."""
        try:
            streams = await self._streams()
            return [*self._exposure(), *await streams.weaknesses()]
        except _FAILURES as error:
            raise BusUnreachable(self._shown, _reason(error)) from error

    async def publish(
        self, batch: Sequence[MessageEnvelope], *, one_by_one: bool = False
    ) -> Sequence[PublishOutcome]:
        """Hand over a batch; the outcomes come in the same order."""
        deadline = asyncio.get_running_loop().time() + self._seconds * _ANSWER_BY
        if not one_by_one:
            return await self._publish(batch, deadline)

        async def publish_alone(message: MessageEnvelope) -> PublishOutcome:
            return (await self._publish((message,), deadline))[0]

        return await publish_one_by_one(batch, deadline, publish_alone)

    async def apply(self, topics: Sequence[str]) -> Sequence[str]:
        """Create the streams that are missing."""
        try:
            streams = await self._streams()
            return await streams.create(topics)
        except _FAILURES as error:
            raise BusUnreachable(self._shown, _reason(error)) from error

    async def forgotten(self, topics: Sequence[str]) -> Sequence[str]:
        """Say which streams do not hold all of their messages."""
        try:
            async with asyncio.timeout(self._seconds):
                return await (await self._streams()).forgotten(topics)
        except _FAILURES as error:
            raise BusUnreachable(self._shown, _reason(error)) from error

    def subscribe(self, request: SubscriptionRequest) -> Subscription:
        """Make a member of a consumer, with a connection of its own."""
        ground = Ground(
            shown=self._shown,
            connect=lambda: Connection(self._servers, self._options),
            streams=self._streams_of,
            exposure=self._exposure,
            partitions=self._partitions,
            here=self._makes_streams,
            seconds=self._seconds * _REACH_BY,
            ack_wait=self._ack_wait,
        )
        return NatsSubscription(ground, request)

    async def close(self) -> None:
        """Disconnect; messages without an answer are unknown."""
        self._closings += 1
        if self._connection is not None:
            self._connection.end(CLOSED)
            self._drop(self._connection)
        if self._farewells:
            await asyncio.wait(self._farewells)

    async def _publish(
        self, batch: Sequence[MessageEnvelope], deadline: float
    ) -> list[PublishOutcome]:
        if not batch:
            return []
        try:
            connection = await self._connected()
            async with connection.in_use():
                refused = await self._look_at(batch, self._streams_of(connection))
        except _FAILURES as error:
            return [Unavailable("unreachable", _reason(error))] * len(batch)
        wired: list[WireMessage] = []
        known: list[PublishOutcome | None] = []
        for message in batch:
            wire = refused.get(message.topic) or self._wire(message)
            known.append(None if isinstance(wire, tuple) else wire)
            if isinstance(wire, tuple):
                wired.append(wire)
        answers = iter(await self._answers(connection, wired, deadline) if wired else ())
        return [outcome or next(answers) for outcome in known]

    async def _answers(
        self, connection: Connection, wired: Sequence[WireMessage], deadline: float
    ) -> Sequence[PublishOutcome]:
        handover = Handover(len(wired), deadline)
        try:
            async with asyncio.timeout_at(deadline):
                await connection.hand_over(wired, handover)
                await handover.done
        except TimeoutError:
            # Nobody knows what the socket still holds: the next call gets a new connection.
            connection.end(NO_ANSWER)
            handover.end(NO_ANSWER)
            self._drop(connection)
        finally:
            if handover.missing:
                connection.abandon(handover)
        return handover.outcomes()

    async def _look_at(
        self, batch: Sequence[MessageEnvelope], streams: Streams
    ) -> Mapping[str | None, PublishOutcome]:
        """Return the topics that no stream keeps or that are no subject, with the reason."""
        unseen = {message.topic for message in batch} - self._kept
        if not unseen:
            return {}
        refused: dict[str | None, PublishOutcome] = {}
        async with self._looking:
            for topic in unseen - self._kept:
                problem = await self._problem(topic, streams)
                if problem is not None:
                    refused[topic] = problem
                elif topic is not None:
                    self._kept.add(topic)
        return refused

    async def _problem(self, topic: str | None, streams: Streams) -> PublishOutcome | None:
        try:
            checked = check_topic(topic or "", NATS)
        except InvalidTopic as error:
            return Refused(error.code, str(error))
        problem = await streams.problem(checked)
        if problem is None or not self._makes_streams:
            return problem
        await streams.create([checked])
        return await streams.problem(checked)

    def _wire(self, envelope: MessageEnvelope) -> WireMessage | Refused:
        try:
            return self._encoded(envelope)
        except ENCODING_ERRORS:
            return refuse_odd_text(envelope)

    def _encoded(self, envelope: MessageEnvelope) -> WireMessage | Refused:
        if is_structured(envelope, self._mode):
            headers, body = structured_headers(envelope), structured_body(envelope)
        else:
            headers, body = _headers(envelope), envelope.body() or b""
        head = _head(envelope, headers)
        if head.count(b"\n") != len(headers) + 3:
            return Refused("invalid-header", "a header holds a line break")
        return envelope.topic or "", partition_for(envelope, self._partitions), head, body

    async def _streams(self) -> Streams:
        return self._streams_of(await self._connected())

    def _streams_of(self, connection: Connection) -> Streams:
        return Streams(
            connection.client,
            self._seconds * _REACH_BY,
            stream=self._stream,
            partitions=self._partitions,
        )

    async def _connected(self) -> Connection:
        """Return a connection that stands, or raise within a part of the limit.

        A call that was made before the bus was closed opens none, and leaves none open.
        """
        closings = self._closings
        try:
            async with asyncio.timeout(self._seconds * _REACH_BY), self._connecting:
                if self._connection is None or self._connection.ended:
                    self._connection = None
                    self._connection = await self._opened(closings)
                # It may be dropped while it is waited for, and is ended then.
                connection = self._connection
                await self._up(connection)
                return connection
        except TimeoutError as late:
            raise TimeoutError(self._complaint or "nobody answered within the limit") from late

    async def _opened(self, closings: int) -> Connection:
        connection = Connection(self._servers, self._options)
        try:
            if closings == self._closings:
                await connection.open()
        except BaseException:
            self._complaint = connection.complaint
            self._drop(connection)
            raise
        if closings != self._closings:
            self._drop(connection)
            raise nats.errors.ConnectionClosedError
        self._kept.clear()
        return connection

    async def _up(self, connection: Connection) -> None:
        try:
            await connection.up()
        finally:
            self._complaint = connection.complaint

    def _exposure(self) -> list[str]:
        """Say whether others can read along, or pass for the server."""
        if wants_tls(self._servers, self._options):
            context: ssl.SSLContext | None = self._options.get("tls")
            if context is None or (context.check_hostname and context.verify_mode):
                return []
            return unverified_weakness(self._shown)
        return plaintext_weakness(self._shown, "use tls://", here=self._makes_streams)

    def _drop(self, connection: Connection) -> None:
        if self._connection is connection:
            self._connection = None
        farewell = asyncio.get_running_loop().create_task(connection.close())
        self._farewells.add(farewell)
        farewell.add_done_callback(self._farewells.discard)


def _head(envelope: MessageEnvelope, headers: Headers) -> bytes:
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
    identity = f"Nats-Msg-Id: {envelope.tenant_id}:{envelope.event_id}"
    return f"NATS/1.0\r\n{identity}\r\n{lines}\r\n".encode()


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
