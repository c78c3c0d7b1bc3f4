"""Ask one node of Kafka what it knows: a client would go on to ask another one."""

import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from pillarbox.servers import Kafka
from pillarbox.servers.wire import ask

Item = TypeVar("Item")
_METADATA: Final = 3
_VERSION: Final = 5
_SIZE: Final = 4
_ANSWER_SECONDS: Final = 20.0
_AGAIN_SECONDS: Final = 0.2


class Partition(NamedTuple):
    """A partition as a node sees it."""

    topic: str
    number: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


def partitions(node: Kafka, topics: Sequence[str]) -> list[Partition]:
    """Return the partitions of topics as this node sees them; raise `OSError` if it is silent."""
    reader = _Reader(_answer(node, _request(topics)), _SIZE)
    reader.skip("ii")  # the request's number, how long to hold back
    reader.array(_broker)
    reader.text()
    reader.skip("i")
    return [found for topic in reader.array(_topic) for found in topic]


def _answer(node: Kafka, request: bytes) -> bytes:
    host, _, port = node.bootstrap.rpartition(":")
    limit = time.monotonic() + _ANSWER_SECONDS
    while True:
        try:
            return ask(int(port), request, _is_whole, host=host)
        except OSError:
            if time.monotonic() > limit:
                raise
            time.sleep(_AGAIN_SECONDS)


def _request(topics: Sequence[str]) -> bytes:
    header = struct.pack(">hhi", _METADATA, _VERSION, 1) + _text("rig")
    body = struct.pack(">i", len(topics)) + b"".join(map(_text, topics)) + b"\x00"
    return struct.pack(">i", len(header + body)) + header + body


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()


def _is_whole(answer: bytes) -> bool:
    return len(answer) >= _SIZE and len(answer) >= _SIZE + int.from_bytes(answer[:_SIZE], "big")


@dataclass(slots=True)
class _Reader:
    """Read one value after the other."""

    data: bytes
    place: int

    def number(self, kind: str) -> int:
        (value,) = struct.unpack_from(f">{kind}", self.data, self.place)
        self.place += struct.calcsize(f">{kind}")
        return int(value)

    def skip(self, kinds: str) -> None:
        self.place += struct.calcsize(f">{kinds}")

    def text(self) -> str:
        size = max(self.number("h"), 0)
        self.place += size
        return self.data[self.place - size : self.place].decode()

    def array(self, item: Callable[["_Reader"], Item]) -> list[Item]:
        return [item(self) for _ in range(self.number("i"))]

    def numbers(self) -> tuple[int, ...]:
        return tuple(self.array(lambda reader: reader.number("i")))


def _broker(reader: _Reader) -> None:
    reader.skip("i")
    reader.text()
    reader.skip("i")
    reader.text()


def _topic(reader: _Reader) -> list[Partition]:
    reader.skip("h")
    topic = reader.text()
    reader.skip("?")
    return reader.array(lambda partition: _partition(topic, partition))


def _partition(topic: str, reader: _Reader) -> Partition:
    reader.skip("h")
    number, leader = reader.number("i"), reader.number("i")
    replicas, in_sync = reader.numbers(), reader.numbers()
    reader.numbers()
    return Partition(topic, number, leader, replicas, in_sync)
