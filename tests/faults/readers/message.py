"""What every reader makes of a message."""

from typing import Final, NamedTuple

WAIT_SECONDS: Final = 20.0


class Message(NamedTuple):
    """One message as the broker stores it.

    `log` names the sequence that `offset` counts in: a partition, a stream or a queue. `at` is the
    broker's own time of storing it.
    """

    topic: str
    log: str
    offset: int
    at: float
    key: str | None
    headers: tuple[tuple[str, str], ...]
    body: bytes | None
