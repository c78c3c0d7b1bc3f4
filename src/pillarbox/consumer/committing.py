"""A COMMIT that its caller gives up: the connection is closed, and the server is not asked to cancel.

Drivers answer a cancellation with a cancel request. For a COMMIT that waits for a synchronous standby
it would end the wait, and the transaction, which no standby has yet, would be seen by all: the
message would pass for handled, and a failover would lose its effect.
"""

import asyncio
import socket
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
    committing = asyncio.ensure_future(session.commit())
    try:
        await asyncio.shield(committing)
    except asyncio.CancelledError:
        # Once it is answered the connection is the pool's again, and may be another's.
        if not committing.done() and not hang_up(driver):
            committing.cancel()
        await _ended(committing)
        raise


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
    """Wait until nobody uses the session any more, also when cancelled again."""
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
