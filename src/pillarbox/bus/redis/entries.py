"""Messages as entries of a stream: the XADD commands, written for the wire."""

import re
from functools import lru_cache
from typing import Final

from pillarbox.bus.odd_text import ENCODING_ERRORS, refuse_odd_text
from pillarbox.bus.outcome import Refused
from pillarbox.bus.partition import partition_for
from pillarbox.bus.redis.outcomes import too_large
from pillarbox.errors import InvalidTopic
from pillarbox.event.cloudevents import (
    ContentMode,
    Headers,
    binary_headers,
    is_structured,
    structured_body,
    structured_headers,
)
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.event.rules import REDIS, check_topic

_REMEMBERED: Final = 4_096

_headers: Final = binary_headers("ce_")
# A header of such a name would be taken for the body or the key.
_ESCAPE: Final = "header_"
_OURS: Final = re.compile(rf"(?:{_ESCAPE})*(?:data|key)")


class Entries:
    """Write each message as one XADD command."""

    def __init__(
        self,
        *,
        partitions: int | None,
        max_length: int | None,
        makes_streams: bool,
        content_mode: ContentMode,
    ) -> None:
        self._partitions = partitions
        self._mode: ContentMode = content_mode
        self._options: tuple[bytes, ...] = () if makes_streams else (b"NOMKSTREAM",)
        if max_length is not None:
            self._options += (b"MAXLEN", b"~", b"%d" % max_length)
        # Topic, options and the id that the server gives are alike for all messages of a stream.
        self._start = lru_cache(_REMEMBERED)(self._start_of)

    def command(self, envelope: MessageEnvelope, bulk_limit: int) -> bytes | Refused:
        """Return the command that adds a message, or why no server takes it."""
        body = envelope.body()
        if body is not None and len(body) > REDIS.message_max_bytes:
            return too_large(len(body), REDIS.message_max_bytes)
        try:
            start, words = self._start(envelope.topic, partition_for(envelope, self._partitions))
            if is_structured(envelope, self._mode):
                body, headers = structured_body(envelope), structured_headers(envelope)
            else:
                headers = _headers(envelope)
            fields, count = _fields(envelope, headers)
        except InvalidTopic as error:
            return Refused(error.code, str(error))
        except ENCODING_ERRORS:
            return refuse_odd_text(envelope)
        words += count
        if body is None:
            return b"*%d\r\n%b%b" % (words, start, fields)
        if len(body) > bulk_limit:
            return too_large(len(body), bulk_limit)
        return b"*%d\r\n%b$4\r\ndata\r\n$%d\r\n%b\r\n%b" % (
            words + 2,
            start,
            len(body),
            body,
            fields,
        )

    def _start_of(self, topic: str | None, stream: str) -> tuple[bytes, int]:
        check_topic(topic or "", REDIS)
        words = (b"XADD", stream.encode(), *self._options, b"*")
        return b"".join(map(_bulk, words)), len(words)


def header_of(field: str) -> str:
    """Return the header that travels as a field of this name."""
    return field.removeprefix(_ESCAPE) if _OURS.fullmatch(field) else field


def _fields(envelope: MessageEnvelope, headers: Headers) -> tuple[bytes, int]:
    if envelope.headers:
        headers = [
            (f"{_ESCAPE}{name}" if _OURS.fullmatch(name) else name, value)
            for name, value in headers
        ]
    if envelope.key is not None:
        headers = [("key", envelope.key), *headers]
    text = "".join(
        [f"${len(name)}\r\n{name}\r\n${len(value)}\r\n{value}\r\n" for name, value in headers]
    )
    if text.isascii():
        return text.encode(), 2 * len(headers)
    # Redis counts bytes, not characters.
    packed = [_bulk(word.encode()) for header in headers for word in header]
    return b"".join(packed), len(packed)


def _bulk(word: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(word), word)
