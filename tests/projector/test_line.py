"""A connection for one purpose: what its failures mean."""

import asyncio
from typing import Any

import psycopg
import pytest

from pillarbox.projector.postgres.line import Line
from pillarbox.projector.store import StoreUnavailable


class Broken:
    """A connection that has broken while a statement ran, as psycopg tells of it."""

    closed = False

    def __init__(self) -> None:
        self.running = asyncio.Event()

    async def execute(self) -> None:
        self.running.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise psycopg.OperationalError("the connection is lost") from None

    async def close(self) -> None:
        self.closed = True


def line_on(connection: Any, limit: float = 10.0) -> Line:
    async def connect() -> Any:
        return connection

    return Line(connect, limit)


async def test_a_cancelled_statement_on_a_broken_connection_stays_cancelled() -> None:
    broken = Broken()
    line = line_on(broken)

    async def ask() -> None:
        async with line.use():
            await broken.execute()

    asking = asyncio.create_task(ask())
    await broken.running.wait()
    asking.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asking
    assert broken.closed


async def test_a_statement_that_outlives_its_limit_is_no_cancellation() -> None:
    broken = Broken()

    with pytest.raises(StoreUnavailable):
        async with line_on(broken, limit=0.01).use():
            await broken.execute()
    assert broken.closed
