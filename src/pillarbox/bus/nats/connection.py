"""One connection to NATS that publishes in bulk and matches answers by number."""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from nats.aio.client import Client
from nats.aio.msg import Msg

from pillarbox.bus.handover import CLOSED, DISCONNECTED, Handover
from pillarbox.bus.nats.client import Cancellations, GuardedClient
from pillarbox.bus.nats.outcomes import denied, denied_subject, outcome_of, too_large
from pillarbox.bus.outcome import PublishOutcome

_log = logging.getLogger("pillarbox.bus.nats")

WireMessage = tuple[str, str, bytes, bytes]
"""Topic, subject, header block and body."""

WINDOW: Final = 8_192
_CHUNK: Final = 256
_CLOSE_SECONDS: Final = 2.0
_RECONNECT_WAIT: Final = 0.25
_PING_SECONDS: Final = 5


class Connection:
    """Publish over one connection; what a break leaves without an answer is unknown."""

    def __init__(self, servers: Sequence[str], options: Mapping[str, Any]) -> None:
        self._servers = list(servers)
        self._options = options
        self._client: Any = GuardedClient(servers, options)
        self._inbox = ""
        self._numbers = itertools.count()
        self._waiting: dict[int, tuple[Handover, int, str, str]] = {}
        self._room = asyncio.Event()
        self._up = asyncio.Event()
        self._errors: set[str] = set()
        self._denied: set[str] = set()
        self._waits: set[asyncio.Timeout] = set()
        self._opening: Cancellations | None = None
        self.complaint = ""
        self.ended = False

    @property
    def client(self) -> Client:
        """The client of nats-py, for streams."""
        found: Client = self._client
        return found

    async def open(self) -> None:
        """Connect, or raise within the caller's limit; later breaks are mended for ever."""
        self._opening = Cancellations()
        await self._client.connect(
            servers=self._servers,
            **{
                "name": "pillarbox",
                "max_reconnect_attempts": -1,
                "reconnect_time_wait": _RECONNECT_WAIT,
                "ping_interval": _PING_SECONDS,
                **self._options,
            },
            error_cb=self._heard,
            disconnected_cb=self._disconnected,
            reconnected_cb=self._reconnected,
            closed_cb=self._closed,
        )
        self._inbox = self._client.new_inbox()
        await self._client.subscribe(f"{self._inbox}.*", cb=self._answered)
        self._opening = None
        self._stands()

    async def up(self) -> None:
        """Wait until the connection stands; the caller sets the limit."""
        await self._up.wait()

    @asynccontextmanager
    async def in_use(self) -> AsyncIterator[None]:
        """Raise `TimeoutError` in a block when the connection ends: the client would wait on."""
        if self.ended:
            raise TimeoutError
        async with asyncio.timeout(None) as wait:
            self._waits.add(wait)
            try:
                yield
            finally:
                self._waits.discard(wait)

    async def hand_over(self, messages: Sequence[WireMessage], handover: Handover) -> None:
        """Send messages in order, as far as the window allows at a time."""
        cancellations = Cancellations()
        for start in range(0, len(messages), _CHUNK):
            while len(self._waiting) >= WINDOW and not self.ended:
                self._room.clear()
                await self._room.wait()
            if self.ended or not self._up.is_set():
                handover.end(DISCONNECTED, start)
                return
            chunk = messages[start : start + _CHUNK]
            await self._send(self._commands(chunk, handover, start))
            cancellations.pass_on()

    def abandon(self, handover: Handover) -> None:
        """Forget the messages of a call whose caller has left."""
        gone = [number for number, found in self._waiting.items() if found[0] is handover]
        for number in gone:
            del self._waiting[number]
        self._room.set()

    def end(self, rest: PublishOutcome) -> None:
        """Give every message without an answer this one and use the connection no more."""
        self.ended = True
        for wait in self._waits:
            wait.reschedule(asyncio.get_running_loop().time())
        self._waits.clear()
        self._answer_all(rest)

    async def close(self) -> None:
        """Let go of the client within a limit."""
        self.end(CLOSED)
        # Its transport may hang on a server that reads no more; what it holds is not wanted.
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._client.close()
        except TimeoutError:
            _log.warning("nats_close_timed_out")

    def _commands(self, chunk: Sequence[WireMessage], handover: Handover, start: int) -> bytes:
        waiting, numbers, inbox = self._waiting, self._numbers, self._inbox
        limit = self._client.max_payload
        commands = []
        for place, (topic, subject, head, body) in enumerate(chunk, start):
            size = len(head) + len(body)
            if size > limit:
                handover.answer(place, too_large(size, limit))
                continue
            number = next(numbers)
            waiting[number] = (handover, place, topic, subject)
            command = f"HPUB {subject} {inbox}.{number} {len(head)} {size}\r\n"
            commands.append(b"%b%b%b\r\n" % (command.encode(), head, body))
        return b"".join(commands)

    async def _send(self, commands: bytes) -> None:
        # The public call checks and copies each header anew, at twice the cost of all the rest.
        if commands:
            await self._client._send_command(commands)  # noqa: SLF001
            await self._client._flush_pending()  # noqa: SLF001

    async def _answered(self, message: Msg) -> None:
        found = self._waiting.pop(int(message.subject.rpartition(".")[2]), None)
        if found is not None:
            handover, place, topic, _ = found
            handover.answer(place, outcome_of(message.data, topic))
            self._room.set()

    def _answer_all(self, rest: PublishOutcome) -> None:
        waiting, self._waiting = self._waiting, {}
        for handover, place, _, _ in waiting.values():
            handover.answer(place, rest)
        self._room.set()

    def _answer_denied(self) -> None:
        """Answer for what was sent to subjects without the right: nothing else comes for it.

        The server drops such messages as it reads them, and says so each time; one search for many.
        """
        denied_now, self._denied = self._denied, set()
        waiting = self._waiting.items()
        gone = [number for number, found in waiting if found[3].lower() in denied_now]
        for number in gone:
            handover, place, topic, _ = self._waiting.pop(number)
            handover.answer(place, denied(topic))
        self._room.set()

    async def _disconnected(self) -> None:
        self._up.clear()
        if not self.ended:
            _log.warning("nats_disconnected")
        self._answer_all(DISCONNECTED)

    async def _reconnected(self) -> None:
        _log.info("nats_reconnected")
        self._errors.clear()
        self._stands()

    async def _closed(self) -> None:
        # The client gives up for good when the server throws it out: its login is no longer right.
        self.end(DISCONNECTED)
        await self._disconnected()

    def _stands(self) -> None:
        self.complaint = ""
        self._up.set()

    async def _heard(self, error: Exception) -> None:
        reason = self.complaint = f"{type(error).__name__}: {error}"
        if reason not in self._errors:  # It repeats itself while the server is away.
            self._errors.add(reason)
            _log.warning("nats_client_error", extra={"reason": reason})
        if (subject := denied_subject(reason)) is not None:
            if not self._denied:
                asyncio.get_running_loop().call_soon(self._answer_denied)
            self._denied.add(subject.lower())  # The client makes all letters small.
        if self._opening is not None:
            self._opening.pass_on()  # The client tries again for ever.
