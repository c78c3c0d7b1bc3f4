"""The reference for RabbitMQ: the overlapped loop, with frames in bulk over one channel.

Persistent, mandatory, and confirmed without waiting for one another. Frames are written by hand and
confirms matched by number: aiormq's own `basic_publish` makes a task and three futures for each
message.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import takewhile
from struct import Struct
from typing import Any, Final

import aiormq
from aiormq.abc import ChannelFrame, ConfirmationFrameType
from aiormq.channel import Channel
from pamqp import commands

from benchmarks.sides.by_hand import CONTENT, ID, PAYLOAD, TIME, TOPIC, TYPE
from benchmarks.sides.headers import SOURCE, header_names, header_values
from benchmarks.sides.overlapped import Loop, Message, Send, main

_CHANNEL: Final = 1
_EXCHANGE: Final = "events"
_END: Final = b"\xce"
_PUBLISH: Final = b"\x00\x3c\x00\x28\x00\x00"
_MANDATORY: Final = b"\x01"
_PROPERTIES: Final = 0b1011_0000_1110_1000  # type, headers, mode, id, time, kind, application
_NAMES: Final = [f"{chr(len(name))}{name}S\0\0\0" for name in header_names("cloudEvents_")]
_CONTENT_TYPE: Final = next(at for at, name in enumerate(_NAMES) if name[1:13] == "content-type")
_frame: Final = Struct(">BHI").pack
_content: Final = Struct(">HHQH").pack
_length: Final = Struct(">I").pack
_time: Final = Struct(">Q").pack


class Confirming(Channel):
    """A channel that tells the loop of the confirms."""

    def __init__(self, client: Any, loop: Loop) -> None:
        super().__init__(client, _CHANNEL)
        self._answers = loop
        self._sent = 0
        self._in_flight: dict[int, Message] = {}
        self._announced: dict[str, bytes] = {}

    async def send(self, messages: list[Message]) -> None:
        """Send messages in one piece."""
        for number, message in enumerate(messages, self._sent + 1):
            self._in_flight[number] = message
        self._sent += len(messages)
        payload = b"".join([self._frames(row) for row, _ in messages])
        written = self.loop.create_future()
        await self.write_queue.put(ChannelFrame(payload, should_close=False, drain_future=written))
        await written

    def _frames(self, row: Any) -> bytes:
        topic, body = row[TOPIC], row[PAYLOAD]
        if topic not in self._announced:
            method = b"".join((_PUBLISH, _short(_EXCHANGE), _short(topic), _MANDATORY))
            self._announced[topic] = _framed(1, method)
        return self._announced[topic] + _framed(2, _head(row, len(body))) + _framed(3, body)

    async def _on_confirm_frame(self, frame: ConfirmationFrameType) -> None:
        if not isinstance(frame, commands.Basic.Ack):
            self._answers.refused(frame)
            return
        last = frame.delivery_tag or 0
        numbers = [last]
        if frame.multiple:
            numbers = list(takewhile(lambda number: number <= last, self._in_flight))
        for number in numbers:
            self._answers.answered(self._in_flight.pop(number))

    async def _on_return_frame(self, frame: commands.Basic.Return) -> None:
        self._answers.refused(f"{frame.routing_key}: {frame.reply_text}")


def _head(row: Any, size: int) -> bytes:
    values = header_values(row)
    # Each value is ASCII and short: its length is one character.
    headers = [
        f"{name}{chr(len(value))}{value}" for name, value in zip(_NAMES, values, strict=True)
    ]
    del headers[_CONTENT_TYPE]  # It is a property.
    table = "".join(headers).encode("latin-1")
    return b"".join(
        (
            _content(60, 0, size, _PROPERTIES),
            _short(row[CONTENT]),
            _length(len(table)),
            table,
            b"\x02",
            _short(row[ID]),
            _time(int(row[TIME].timestamp())),
            _short(row[TYPE]),
            _short(SOURCE),
        )
    )


def _framed(kind: int, payload: bytes) -> bytes:
    return b"%b%b%b" % (_frame(kind, _CHANNEL, len(payload)), payload, _END)


def _short(text: str) -> bytes:
    return f"{chr(len(text))}{text}".encode("latin-1")


@asynccontextmanager
async def opening(url: str, loop: Loop) -> AsyncIterator[Send]:
    """Connect and open the channel."""
    async with aiormq.connect(url) as client:
        channel = Confirming(client, loop)
        client.channels[_CHANNEL] = channel
        await channel.open()
        yield channel.send


if __name__ == "__main__":
    main(opening)
