"""Tell projectors in other processes that something was committed."""

import asyncio
import logging
from datetime import timedelta
from typing import Final

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from pillarbox.outbox.wakeup import CHANNEL, wakeup_of

log = logging.getLogger(__name__)

# The setting ends with the statement's own transaction, so nothing leaks through a pooler; a
# wake-up need not survive a crash.
_NOTIFY: Final = text(
    "SELECT set_config('synchronous_commit', 'off', true), pg_notify(:channel, '')"
)


class Notifier:
    """Send at most one NOTIFY per quiet period, outside every business transaction.

    A NOTIFY inside each business transaction would halve the rate of commits. One that is lost
    costs latency only: projectors poll as well. Takes a connection from the engine's pool for the
    moment of sending.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        quiet: timedelta = timedelta(milliseconds=5),
        pause_after_error: timedelta = timedelta(seconds=1),
    ) -> None:
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._wakeup = wakeup_of(engine)
        self._quiet = quiet.total_seconds()
        self._pause = pause_after_error.total_seconds()

    async def run(self) -> None:
        """Notify after commits until cancelled; errors are logged, waited out and survived."""
        if self._engine.dialect.name != "postgresql":
            return
        with self._wakeup.listen() as listener:
            while True:
                await listener.wait()
                await asyncio.sleep(self._quiet if await self._notify() else self._pause)

    async def _notify(self) -> bool:
        try:
            async with self._engine.connect() as connection:
                await connection.execute(_NOTIFY, {"channel": CHANNEL})
        except (SQLAlchemyError, OSError) as error:
            log.warning("notify_failed", extra={"error": type(error).__name__})
            return False
        return True
