"""Events applied one by one, each in a savepoint; what fails is held with its key."""

import logging
from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from pillarbox.consumer.transactions import DatabaseAway
from pillarbox.readmodel.applying import Applier, EventGone, FailedEntry, Touched, refuse_away
from pillarbox.readmodel.checkpoint import Generation
from pillarbox.readmodel.definition import ReadModel
from pillarbox.readmodel.held import HeldKey, HeldKeys, delay
from pillarbox.readmodel.log import Entry, Log
from pillarbox.readmodel.parts import Parts

log = logging.getLogger("pillarbox.readmodel")


class GivenUp(Exception):
    """A method has closed the connection: its event is held by the next transaction, untried."""

    def __init__(self, entry: Entry, error: Exception) -> None:
        super().__init__(entry.event_id)
        self.entry, self.error = entry, error


class Careful:
    """Apply events so that each fails alone; transactions come one after the other.

    Whoever gets `GivenUp` says so with `note`, and begins the same transaction again.
    """

    def __init__(self, model: ReadModel, parts: Parts, held: HeldKeys, log_: Log) -> None:
        self._model, self._parts, self._held, self._log = model, parts, held, log_
        self._given_up: dict[int, Exception] = {}

    def note(self, found: GivenUp) -> None:
        """Have an event held that must not be tried again now."""
        self._given_up[found.entry.seq] = found.error

    async def apply(
        self, session: AsyncSession, at: Generation, applier: Applier, entries: Sequence[Entry]
    ) -> tuple[int, Touched]:
        """Apply a batch; count what was applied, and say which rows were written."""
        count, touched, stopped = 0, set[tuple[str, str]](), set[tuple[str, str]]()
        for entry in entries:
            if entry.event is None or entry.line in stopped:
                continue
            tried = await self._try(session, applier, entry)
            if isinstance(tried, Exception):
                stopped.add(entry.line)
                await self._hold(session, at, entry, tried, attempts=1)
            else:
                count, touched = count + tried[0], touched | tried[1]
        return count, touched

    async def release(
        self, session: AsyncSession, at: Generation, key: HeldKey
    ) -> tuple[int, Touched]:
        """Apply what waits for a key, one by one; the first that fails holds it from there on.

        An event whose row is gone fails for ever: those behind it must not pass for all there was.
        """
        count, touched = 0, set[tuple[str, str]]()
        found = await self._log.read_key(session, key.line, key.seq, at.position.number)
        if not any(entry.seq == key.seq for entry in found):
            gone = Entry(key.seq, *key.line, str(key.event_id), None)
            await self._hold(session, at, gone, EventGone(key.seq), attempts=key.attempts + 1)
            return count, touched
        applier = Applier(self._model, self._parts, at)
        # A row in a gap was committed meanwhile: the next batch reads it, and must be the only one.
        for entry in [entry for entry in found if at.position.covers(entry.seq)]:
            tried = await self._try(session, applier, entry)
            if isinstance(tried, Exception):
                attempts = key.attempts + 1 if entry.seq == key.seq else 1
                await self._hold(session, at, entry, tried, attempts=attempts)
                return count, touched
            count, touched = count + tried[0], touched | tried[1]
        await self._held.release(session, at, key.line)
        self._parts.observer.released(*key.line)
        return count, touched

    async def _try(
        self, session: AsyncSession, applier: Applier, entry: Entry
    ) -> tuple[int, Touched] | Exception:
        """Apply one event in a savepoint; return what it failed with."""
        if entry.seq in self._given_up:
            return self._given_up[entry.seq]
        connection = await session.connection()
        try:
            async with session.begin_nested():
                return await applier.apply(session, [entry])
        except Exception as error:  # noqa: BLE001 - whatever a method or a write may raise
            refuse_away(error)
            return _refuse_closed(connection, entry, error)

    async def _hold(
        self,
        session: AsyncSession,
        at: Generation,
        entry: Entry,
        error: Exception,
        *,
        attempts: int,
    ) -> None:
        config = self._parts.config
        due = self._parts.clock.now() + delay(attempts, config.retry_delay, config.retry_delay_max)
        await self._held.hold(session, at, entry, error, attempts=attempts, due_at=due)
        fields = {"model": at.name, "tenant": entry.tenant_id, "event_id": entry.event_id}
        log.error("event_held", extra={**fields, "error_class": type(error).__name__})
        self._parts.observer.held(entry.tenant_id, entry.key, type(error).__name__)


def _refuse_closed(connection: AsyncConnection, entry: Entry, error: Exception) -> Exception:
    """Return what a method, or its write, failed with; on a closed connection nothing can be noted."""
    is_its_own = isinstance(error, FailedEntry) and isinstance(error.__cause__, Exception)
    found = error.__cause__ if is_its_own else error
    assert isinstance(found, Exception)  # noqa: S101 - for the type
    if not connection.invalidated:
        return found
    if is_its_own:
        raise GivenUp(entry, found) from error
    raise DatabaseAway(error) from error
