"""The log of Redis: all streams, by their range."""

from collections.abc import Iterator
from typing import Any, Final

from redis import Redis

from tests.faults.readers.message import WAIT_SECONDS, Message

_BATCH: Final = 1_000


def read(url: str) -> Iterator[Message]:
    """Read what the server holds now, each stream in its order."""
    with Redis.from_url(url, socket_timeout=WAIT_SECONDS) as client:
        streams: list[bytes] = [*client.scan_iter(_type="stream")]
        for stream in sorted(streams):
            for offset, (entry, fields) in enumerate(_entries(client, stream)):
                yield _message(stream.decode(), offset, entry.decode(), fields)


def _entries(client: Any, stream: bytes) -> Iterator[tuple[bytes, dict[bytes, bytes]]]:
    after = "-"
    while found := client.xrange(stream, min=after, count=_BATCH):
        yield from found
        after = f"({found[-1][0].decode()}"


def _message(stream: str, offset: int, entry: str, fields: dict[bytes, bytes]) -> Message:
    body, key = fields.pop(b"data", None), fields.pop(b"key", None)
    return Message(
        topic=stream,
        log=stream,
        offset=offset,
        # The server itself makes an entry's id of its clock.
        at=int(entry.partition("-")[0]) / 1000,
        key=None if key is None else key.decode(),
        headers=tuple((name.decode(), value.decode()) for name, value in fields.items()),
        body=body,
    )
