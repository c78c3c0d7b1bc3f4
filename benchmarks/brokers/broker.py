"""What a suite asks of a broker."""

from collections import Counter
from typing import Final, Protocol

LIMIT_SECONDS: Final = 30.0
BODY: Final = b"x" * 400

Message = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes], ...]]
"""A message's key, body and sorted headers."""


class Broker(Protocol):
    """One topic of a running server; `side` is the reference, which gets `address`, ours `url`."""

    @property
    def side(self) -> str:
        """The program under `sides` that is the reference."""
        ...

    @property
    def url(self) -> str:
        """The address that ours gets."""
        ...

    @property
    def address(self) -> str:
        """The address that the reference gets."""
        ...

    async def start_afresh(self) -> None:
        """Delete the topic with its messages and make it again."""
        ...

    async def messages(self, count: int) -> Counter[Message]:
        """Read so many messages."""
        ...
