"""A COMMIT that its caller gives up: the connection is closed, and the server is not asked to cancel.

Drivers answer a cancellation with a cancel request. For a COMMIT that waits for a synchronous standby
it would end the wait, and the transaction, which no standby has yet, would be seen by all: a
message would pass for handled, a repeated command would get its answer, and a failover would lose
the effect.
"""

import asyncio
import socket
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncSession

# A driver notices at once that its connection is closed; this is for one that does not.
_NOTICED: Final = 5.0


async def commit(session: AsyncSession) -> None:
    """Commit a transaction; whoever is cancelled meanwhile leaves with the outcome unknown."""
    connection = await session.connection()
    if connection.dialect.name != "postgresql":
        await session.commit()
        return
    driver = (await connection.get_raw_connection()).driver_connection
    await hanging_up(driver, session.commit())


async def hanging_up(driver: Any, work: Coroutine[Any, Any, None]) -> None:
    """Do work that ends with a COMMIT; whoever is cancelled meanwhile closes its connection.

    Cancelled again, it still waits until nobody uses the connection any more.
    """
    over = asyncio.get_running_loop().create_future()
    committing = asyncio.ensure_future(_telling(over, work))
    try:
        await over  # a shield would do the same, a turn of the loop later
    except asyncio.CancelledError:
        # Once it is answered the connection is the pool's again, and may be another's.
        if not committing.done() and not hang_up(driver):
            committing.cancel()
        await _ended(committing)
        raise
    committing.result()


async def _telling(over: asyncio.Future[None], work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    finally:
        if not over.done():
            over.set_result(None)


def hang_up(driver: Any) -> bool:
    """Close a driver's connection without a word to the server; False if it is none that we know."""
    if hasattr(driver, "pgconn"):  # psycopg, which sees the end of the stream and raises
        if not driver.closed:
            line = socket.socket(fileno=driver.pgconn.socket)
            with suppress(OSError):  # the other side may have closed it
                line.shutdown(socket.SHUT_RDWR)
            line.detach()  # libpq closes it
        return True
    if hasattr(driver, "terminate"):  # asyncpg
        driver.terminate()
        return True
    return False


async def _ended(committing: asyncio.Future[None]) -> None:
    """Wait until nobody uses the connection any more, also when cancelled again."""
    loop = asyncio.get_running_loop()
    latest = loop.time() + _NOTICED
    while not committing.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({committing}, timeout=max(latest - loop.time(), 0.0))
        if loop.time() >= latest:
            committing.cancel()
            latest = loop.time() + _NOTICED
    if not committing.cancelled():
        committing.exception()  # Seen: the outcome is unknown, whatever it says.
