"""Properties that the client cannot decode: a message that has them comes without any."""

import asyncio
from typing import Final, cast

from pamqp.header import ContentHeader

_HEADER: Final = b"\x02"
_START: Final = 12  # class, weight and the size of the body
_TYPE_BYTES: Final = 1
_SIZE_BYTES: Final = 6


class CarefulReader:
    """Read frames as the client asks for them, and blank what it would end the connection for.

    The client gives up at a property that is no text, or a date that no calendar has. RabbitMQ would
    deliver the message again, to every member in turn, for ever. It costs a second decoding of each
    message, so it is used once such a message was met.
    """

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._type = b""

    def at_eof(self) -> bool:
        """Tell whether the broker has ended the connection."""
        return self._reader.at_eof()

    async def read(self) -> bytes:
        """Read all that comes until the end."""
        return await self._reader.read()

    async def readexactly(self, count: int) -> bytes:
        """Read a part of a frame: its type, its number and size, or the rest."""
        found = await self._reader.readexactly(count)
        if count == _TYPE_BYTES:
            self._type = found
        elif count != _SIZE_BYTES and self._type == _HEADER:
            return decodable(found)
        return found


def careful(reader: asyncio.StreamReader) -> asyncio.StreamReader:
    """Wrap a reader; the client uses no more of it than this one has."""
    return cast("asyncio.StreamReader", CarefulReader(reader))


def decodable(payload: bytes) -> bytes:
    """Return the header of a message with its end mark, without properties if they are no sense."""
    try:
        ContentHeader().unmarshal(payload[:-1])
    except (ValueError, OverflowError, OSError, LookupError, TypeError):
        # Flags of zero name no property, and the rest is not looked at.
        return payload[:_START] + bytes(len(payload) - _START - 1) + payload[-1:]
    return payload
