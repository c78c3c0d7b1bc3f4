"""A cache of hot rows: what it must promise, whoever keeps it."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

RowName = tuple[str, str]
"""A row by its tenant and its id, as texts."""


class Found(NamedTuple):
    """What a cache has of a row: its content, or a token with which it may be put."""

    content: bytes | None
    token: str


class RowCache(Protocol):
    """Keep copies of rows that are read often.

    A copy is removed after the commit of what changed its row. A reader that was slow must not put an
    old row back: it may put what it read only under the token that it was given before it read, and
    forgetting a row makes its tokens worthless.
    """

    async def get(self, model: str, row: RowName) -> Found:
        """Return a copy, or a token for putting one."""
        ...

    async def put(self, model: str, row: RowName, content: bytes, token: str) -> bool:
        """Keep a copy if the token is still good; say whether it was kept."""
        ...

    async def forget(self, model: str, rows: Sequence[RowName]) -> None:
        """Remove copies, and make all tokens of the rows worthless. Safe to repeat."""
        ...

    async def forget_all(self, model: str) -> None:
        """Remove all copies of a model, and make all its tokens worthless."""
        ...
