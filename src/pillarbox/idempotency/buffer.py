"""Hold an answer back until it is recorded; let one that is too large, or a stream, go on."""

from typing import Final

from pillarbox.idempotency.http import Message, Send

_EVENTS: Final = b"text/event-stream"
_NO_ANSWER: Final = 500


class AnswerBuffer:
    """Take the messages of an ASGI application and keep them, up to a limit of bytes.

    Beyond it, or for a stream of events, what was held is sent and the rest follows at once: such
    an answer is not recorded with its body.
    """

    def __init__(self, send: Send, limit: int) -> None:
        self._send, self._limit = send, limit
        self._held: list[Message] = []
        self._size = 0
        self._passes = False
        self._start: Message | None = None

    async def take(self, message: Message) -> None:
        """Hold or pass on one message of the application."""
        if message["type"] == "http.response.start":
            self._start = message
            self._passes = any(
                name.lower() == b"content-type" and value.startswith(_EVENTS)
                for name, value in message.get("headers", ())
            )
        self._held.append(message)
        self._size += len(message.get("body", b""))
        if self._passes or self._size > self._limit:
            self._passes = True
            await self.flush()

    async def flush(self) -> None:
        """Send what is held."""
        held, self._held = self._held, []
        for message in held:
            await self._send(message)

    def found(self) -> tuple[int, list[tuple[bytes, bytes]], bytes | None]:
        """Return status, headers and body; no body for an answer that was passed on."""
        if self._start is None:
            return _NO_ANSWER, [], b""
        body = b"".join(message.get("body", b"") for message in self._held)
        headers = list(self._start.get("headers", ()))
        return self._start["status"], headers, None if self._passes else body
