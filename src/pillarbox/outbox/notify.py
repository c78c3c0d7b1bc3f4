"""Tell projectors in other processes that something was committed."""

import asyncio
import logging
from contextlib import suppress
from datetime import timedelta
from typing import Final

from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from pillarbox.outbox.wakeup import CHANNEL, wakeup_of

log = logging.getLogger(__name__)

# The setting ends with the statement's own transaction, so nothing leaks through a pooler; a
# wake-up need not survive a crash.
_NOTIFY: Final = f"SELECT set_config('synchronous_commit', 'off', true), pg_notify('{CHANNEL}', '')"
# A connection that is idle for longer may be dropped on the way, and its end be noticed late.
_IDLE: Final = 30.0


class Notifier:
    """Send at most one NOTIFY per quiet period, outside every business transaction.

    A NOTIFY inside each business transaction would halve the rate of commits. One that is lost
    costs latency only: projectors poll as well. It keeps a connection of its own, made as the
    engine makes its: in the application's pool a wake-up would wait while that is busiest.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        quiet: timedelta = timedelta(milliseconds=2),
        pause_after_error: timedelta = timedelta(seconds=1),
    ) -> None:
        alike = Engine(engine.pool.recreate(), engine.dialect, engine.url)
        self._engine = AsyncEngine(alike).execution_options(isolation_level="AUTOCOMMIT")
        self._connection: AsyncConnection | None = None
        self._wakeup = wakeup_of(engine)
        self._quiet = quiet.total_seconds()
        self._pause = pause_after_error.total_seconds()

    async def run(self) -> None:
        """Notify after commits until cancelled; errors are logged, waited out and survived."""
        if self._engine.dialect.name != "postgresql":
            return
        try:
            with self._wakeup.listen() as listener:
                while True:
                    try:
                        async with asyncio.timeout(_IDLE):  # wait_for may forget a cancellation
                            await listener.wait()
                    except TimeoutError:
                        await self._disconnect()
                        continue
                    await asyncio.sleep(self._quiet if await self._notify() else self._pause)
        finally:
            await self._disconnect()
            await self._engine.dispose()

    async def _notify(self) -> bool:
        kept = self._connection is not None
        try:
            if self._connection is None:
                self._connection = await self._engine.connect()
            await self._connection.exec_driver_sql(_NOTIFY)
        except Exception as error:  # not all drivers' errors are SQLAlchemy's
            await self._disconnect()
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                # On a connection that breaks meanwhile a cancellation ends as that error.
                raise asyncio.CancelledError from error
            if kept:
                return await self._notify()
            log.warning("notify_failed", extra={"error": type(error).__name__})
            return False
        return True

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):  # it is broken already
                await connection.close()
