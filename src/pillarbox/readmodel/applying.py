"""A batch of the log in one transaction: read, applied, and the position moved with it."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from pillarbox.consumer.context import Context
from pillarbox.consumer.fate import Fate, fate_of
from pillarbox.consumer.routes import Prepared
from pillarbox.consumer.transactions import DatabaseAway, is_away, is_away_under
from pillarbox.consumer.user_code import answering_for_itself
from pillarbox.event.incoming import Unreadable
from pillarbox.readmodel.checkpoint import Generation
from pillarbox.readmodel.definition import EventMethod, ModelSession, ReadModel
from pillarbox.readmodel.handling import routes_of
from pillarbox.readmodel.log import Entry
from pillarbox.readmodel.parts import Parts
from pillarbox.readmodel.writing import Queued, Writer
from pillarbox.tenancy import enter_tenant

Touched = set[tuple[str, str]]


class UnreadableEvent(Exception):
    """An event of the log cannot become what its method takes."""


class EventGone(Exception):
    """A held event's row was deleted: what it would have done is not known any more."""

    def __init__(self, seq: int) -> None:
        super().__init__(
            f"the event at position {seq} was deleted from the log before it was applied; its key is "
            "held for good; build the model again from a snapshot query"
        )


class FailedEntry(Exception):
    """An event failed; the cause says how."""

    def __init__(self, entry: Entry) -> None:
        super().__init__(entry.event_id)
        self.entry = entry


class ConnectionClosed(Exception):
    """A method went on after a statement of its own that it had given up."""

    def __init__(self) -> None:
        super().__init__(
            "it gave up a statement, by a time-out around it, say; so the connection was closed, "
            "and what it did is undone: let a time-out end the method, or have the database end "
            "the statement (statement_timeout)"
        )


class _NotWritten(Exception):
    """What was answered for earlier events could not be written; the event at hand is not to blame."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


class _OwnFault(Exception):
    """What a method raised is its own failure, whatever it looks like; the cause says how."""


class Batch(NamedTuple):
    """What a transaction has done: rows read, events applied, rows of the model written."""

    read: int
    events: int
    touched: Touched
    more: bool
    due: bool = False
    """Whether a held key is to be tried again."""


NOTHING = Batch(0, 0, set(), more=False)


class Applier:
    """Apply the log to one generation of a model. One transaction at a time uses it."""

    def __init__(self, model: ReadModel, parts: Parts, generation: Generation) -> None:
        self._parts, self._name = parts, model.name
        self._writer = Writer(
            model,
            generation.generation,
            shadow=generation.state == "filling",
            schema=parts.schema,
        )
        self._routes = routes_of(model, self._take, parts.registry, parts.rules)
        self._queue: list[Queued] = []
        self._touched: Touched = set()
        self._tenant: str | None = None

    async def apply(self, session: AsyncSession, entries: Sequence[Entry]) -> tuple[int, Touched]:
        """Apply events in order; raise `FailedEntry` for the first whose method fails.

        What a write raises goes through as it is: it may be for any of the events before.
        """
        self._queue, self._touched, self._tenant = [], set(), None
        count = 0
        for entry in sorted(entries, key=lambda entry: (entry.tenant_id, entry.seq)):
            if entry.event is None:
                continue
            count += 1
            if entry.tenant_id != self._tenant:
                await self.flush(session)
                await self._enter(session, entry.tenant_id)
            try:
                await self._one(session, entry)
            except _OwnFault as fault:
                raise FailedEntry(entry) from fault.__cause__
            except _NotWritten as failed:
                raise failed.error from None
            except Exception as error:
                refuse_away(error)
                raise FailedEntry(entry) from error
        await self.flush(session)
        return count, self._touched

    async def flush(self, session: AsyncSession) -> None:
        """Write what was answered so far."""
        queued, self._queue = self._queue, []
        if queued and self._tenant is not None:
            written = await self._writer.write(session, self._tenant, queued)
            self._touched |= {(self._tenant, row_id) for row_id in written}

    async def _one(self, session: AsyncSession, entry: Entry) -> None:
        if isinstance(entry.event, Unreadable):
            raise UnreadableEvent(f"{entry.event.code}: {entry.event.reason}")
        assert entry.event is not None  # noqa: S101 - those were left out
        found = self._routes.resolve(entry.event)
        if isinstance(found, Unreadable):
            raise UnreadableEvent(f"{found.code}: {found.reason}")
        if isinstance(found, Prepared):
            context = Context(consumer=self._name, envelope=found.envelope, session=session)
            await found.handler(context)

    async def _enter(self, session: AsyncSession, tenant_id: str) -> None:
        self._tenant = tenant_id
        if self._parts.walled:
            connection = await session.connection()
            await connection.run_sync(enter_tenant, tenant_id)

    async def _take(self, method: EventMethod, event: Any, ctx: Context) -> None:
        at = None
        if method.works_on_session:
            try:
                await self.flush(ctx.session)
            except Exception as error:
                raise _NotWritten(error) from error
            at = ModelSession(ctx.session, self._writer.table, ctx.envelope)
        connection = await ctx.session.connection()
        with _at_its_own_risk(connection, fate_of(connection)):
            changes = await method.changes(event, ctx.envelope, at)
        if changes:
            self._queue.append(Queued(ctx.envelope, changes))


def refuse_away(error: Exception) -> None:
    """Raise what the database did by itself: no event is to blame."""
    if isinstance(error, DatabaseAway) or is_away(error):
        raise error


@contextmanager
def _at_its_own_risk(connection: AsyncConnection, fate: Fate) -> Iterator[None]:
    """Tell what a method brings upon itself from what the database does."""
    try:
        with answering_for_itself():
            yield
        _refuse_closed(connection)
    except Exception as error:
        if is_away_under(connection, fate, error):
            raise DatabaseAway(error) from error
        raise _OwnFault from error


def _refuse_closed(connection: AsyncConnection) -> None:
    if connection.invalidated:
        raise ConnectionClosed


Apply = Callable[
    [AsyncSession, Generation, Applier, Sequence[Entry]], Awaitable[tuple[int, Touched]]
]
"""Apply the events of a batch; count them, and say which rows were written."""


async def together(
    session: AsyncSession, at: Generation, applier: Applier, entries: Sequence[Entry]
) -> tuple[int, Touched]:
    """Apply a batch as a whole."""
    del at
    return await applier.apply(session, entries)


async def one_by_one(
    session: AsyncSession, at: Generation, applier: Applier, entries: Sequence[Entry]
) -> tuple[int, Touched]:
    """Apply events each by itself, so that whatever fails has a name; raise `FailedEntry`."""
    del at
    count, touched = 0, set[tuple[str, str]]()
    for entry in entries:
        try:
            events, written = await applier.apply(session, [entry])
        except FailedEntry:
            raise
        except Exception as error:
            refuse_away(error)
            raise FailedEntry(entry) from error
        count, touched = count + events, touched | written
    return count, touched
