"""Events applied one by one, each in a savepoint; what fails is held with its key."""

import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox.consumer.transactions import DatabaseAway
from pillarbox.readmodel.applying import (
    Applied,
    Applier,
    EventGone,
    FailedEntry,
    refuse_away,
)
from pillarbox.readmodel.checkpoint import Generation
from pillarbox.readmodel.definition import ReadModel
from pillarbox.readmodel.held import HeldKey, HeldKeys, delay
from pillarbox.readmodel.log import Entry, Log
from pillarbox.readmodel.parts import Parts
from pillarbox.readmodel.savepoint import Spoiled, in_savepoint

log = logging.getLogger("pillarbox.readmodel")

FEW: Final = 20
"""How many rows are read at once that are applied one by one: a commit after each few is progress."""

LONGEST: Final = timedelta(seconds=1)
"""How long slow methods may go on in a transaction, which holds the model's row, until it is committed."""


class GivenUp(Exception):
    """A method has ended its savepoint or its connection: the next transaction holds its event untried."""

    def __init__(self, entry: Entry, error: Exception) -> None:
        super().__init__(entry.event_id)
        self.entry, self.error = entry, error


class NotReached(Exception):
    """Events of a key took their time; those behind them come with the next look."""

    def __init__(self) -> None:
        super().__init__("events of its key before it took long; it comes with the next look")


class Careful:
    """Apply events so that each fails alone; transactions come one after the other.

    Whoever gets `GivenUp` says so with `note`, and begins the same transaction again; so he does when one
    fails as a whole, at the commit, say, and `blame` finds whom to hold. Whoever has committed one says
    so with `tell`.
    """

    def __init__(self, model: ReadModel, parts: Parts, held: HeldKeys, log_: Log) -> None:
        self._model, self._parts, self._held, self._log = model, parts, held, log_
        self._given_up: dict[int, Exception] = {}
        self._applied: list[Entry] = []
        """What the transaction in hand has applied."""
        self._to_tell: list[Callable[[], None]] = []
        self._alone = False
        """Whether a transaction is to end after its first event."""

    def note(self, found: GivenUp) -> None:
        """Have an event held that must not be tried again now; its transaction is undone."""
        self._given_up[found.entry.seq] = found.error
        self._forget()

    def blame(self, error: Exception) -> bool:
        """Have the one event held that made its transaction fail; of many, the next applies the first.

        Return whether there is anybody to blame.
        """
        found = list(self._applied)
        self._forget()
        if len(found) == 1:
            self._given_up[found[0].seq] = error
        self._alone = True
        return bool(found)

    def tell(self) -> None:
        """Tell of keys that are held, or released, by a transaction that is committed."""
        told = self._to_tell
        self._forget()
        for tell in told:
            tell()

    def _forget(self) -> None:
        self._applied, self._to_tell = [], []

    async def apply(
        self, session: AsyncSession, at: Generation, applier: Applier, entries: Sequence[Entry]
    ) -> Applied:
        """Apply a batch as far as there is time, the first event in any case.

        What a transaction has done before a method spoiled it is done again: it ends there, so that
        this happens to each event once.
        """
        count, touched, stopped = 0, set[tuple[str, str]](), set[tuple[str, str]]()
        latest, upto = self._parts.clock.now() + LONGEST, None
        for entry in entries:
            if entry.event is None or entry.line in stopped:
                continue
            if upto is not None and (upto in self._given_up or self._is_over(latest)):
                return Applied(count, touched, upto)
            tried, upto = await self._try(session, applier, entry), entry.seq
            if isinstance(tried, Exception):
                stopped.add(entry.line)
                await self._hold(session, at, entry, tried, attempts=1)
            else:
                count, touched = count + tried.events, touched | tried.touched
        return Applied(count, touched)

    async def release(
        self, session: AsyncSession, at: Generation, key: HeldKey, now: datetime
    ) -> Applied:
        """Apply what waits for a key, one by one; the first that fails holds it from there on.

        What there is no time for comes behind the other keys that are due now. An event whose row is
        gone fails for ever: those behind it must not pass for all there was.
        """
        latest, most = self._parts.clock.now() + LONGEST, self._parts.config.batch_size
        found = await self._log.read_key(session, key.line, key.seq, at.position.number, most + 1)
        if not any(entry.seq == key.seq for entry in found):
            gone = Entry(key.seq, *key.line, str(key.event_id), None)
            await self._hold(session, at, gone, EventGone(key.seq), attempts=key.attempts + 1)
            return Applied(0, set())
        count, touched, upto = 0, set[tuple[str, str]](), None
        applier = Applier(self._model, self._parts, at)
        for number, entry in enumerate(found):
            if number == most or (upto is not None and self._is_over(latest)):
                await self._held.hold(session, at, entry, NotReached(), attempts=0, due_at=now)
                return Applied(count, touched, upto)
            if not at.position.covers(entry.seq):
                # It was committed in a gap meanwhile: the batch that reads it must be the only one.
                continue
            tried, upto = await self._try(session, applier, entry), entry.seq
            if isinstance(tried, Exception):
                attempts = key.attempts + 1 if entry.seq == key.seq else 1
                await self._hold(session, at, entry, tried, attempts=attempts)
                return Applied(count, touched)
            count, touched = count + tried.events, touched | tried.touched
        await self._held.release(session, at, key.line)
        self._to_tell.append(partial(self._parts.observer.released, *key.line))
        return Applied(count, touched)

    async def _try(
        self, session: AsyncSession, applier: Applier, entry: Entry
    ) -> Applied | Exception:
        """Apply one event in a savepoint; return what it failed with."""
        if entry.seq in self._given_up:
            return self._given_up[entry.seq]
        try:
            applied = await in_savepoint(session, partial(applier.apply, session, [entry]))
        except Spoiled as spoiled:
            refuse_away(spoiled.error)
            own = _own(spoiled.error)
            if own is None and spoiled.closed:
                raise DatabaseAway(spoiled.error) from spoiled.error
            raise GivenUp(entry, own or spoiled.error) from spoiled.error
        except Exception as error:  # noqa: BLE001 - whatever a method or a write may raise
            refuse_away(error)
            return _own(error) or error
        self._applied.append(entry)
        return applied

    def _is_over(self, latest: datetime) -> bool:
        return self._alone or self._parts.clock.now() >= latest

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
        self._to_tell.append(partial(self._tell_held, at.name, entry, type(error).__name__))

    def _tell_held(self, model: str, entry: Entry, error_class: str) -> None:
        fields = {"model": model, "tenant": entry.tenant_id, "event_id": entry.event_id}
        log.error("event_held", extra={**fields, "error_class": error_class})
        self._parts.observer.held(entry.tenant_id, entry.key, error_class)


def _own(error: Exception) -> Exception | None:
    """Return what a method failed with; None for what is not a method's."""
    cause = error.__cause__ if isinstance(error, FailedEntry) else None
    return cause if isinstance(cause, Exception) else None
