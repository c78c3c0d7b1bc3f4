"""A batch of the log in one transaction: read, applied, and the position moved with it."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from pillarbox.consumer.context import Context
from pillarbox.consumer.fate import Fate, fate_of, is_undone
from pillarbox.consumer.routes import Prepared
from pillarbox.consumer.transactions import DatabaseAway, is_away, is_away_under
from pillarbox.consumer.user_code import answering_for_itself
from pillarbox.errors import UnitOfWorkError
from pillarbox.event.incoming import Unreadable
from pillarbox.readmodel.changes import Change
from pillarbox.readmodel.checkpoint import Generation
from pillarbox.readmodel.definition import EventMethod, ModelSession, ReadModel
from pillarbox.readmodel.handling import routes_of
from pillarbox.readmodel.log import Entry
from pillarbox.readmodel.parts import Parts
from pillarbox.readmodel.savepoint import Spoiled, StatementFailed, in_savepoint, innermost
from pillarbox.readmodel.writing import Queued, Writer
from pillarbox.tenancy import enter_tenant

Touched = set[tuple[str, str]]

_ENDED: Final = (
    "it ended the transaction or the savepoint that it runs in, or left a savepoint of its own open; "
    "end what you begin, and leave commit and rollback of model.session to the runner"
)


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
    """An event failed; the cause says how.

    `on_session` is whether its method worked on the session: there an earlier one may be to blame that
    passed over a statement which had failed, since PostgreSQL refuses all that follow.
    """

    def __init__(self, entry: Entry, *, on_session: bool = False) -> None:
        super().__init__(entry.event_id)
        self.entry, self.on_session = entry, on_session


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

    def __init__(self, *, on_session: bool) -> None:
        super().__init__()
        self.on_session = on_session


class Applied(NamedTuple):
    """What became of the events of a batch: how many were applied, and which rows were written."""

    events: int
    touched: Touched
    upto: int | None = None
    """The number of the last row that was dealt with, if those behind it were left for another batch."""


class Batch(NamedTuple):
    """What a transaction has done: rows passed, events applied, rows of the model written."""

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
        self._ground: tuple[AsyncConnection, Fate] | None = None
        """The connection that events are applied on, and what becomes of it; once for all of them."""

    async def apply(self, session: AsyncSession, entries: Sequence[Entry]) -> Applied:
        """Apply events in order; raise `FailedEntry` for the first whose method fails.

        What a write raises goes through as it is: it may be for any of the events before.
        """
        self._queue, self._touched, self._tenant = [], set(), None
        connection = await session.connection()
        self._ground = connection, fate_of(connection)
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
                raise FailedEntry(entry, on_session=fault.on_session) from fault.__cause__
            except _NotWritten as failed:
                raise failed.error from None
            except Exception as error:
                refuse_away(error)
                raise FailedEntry(entry) from error
        await self.flush(session)
        return Applied(count, self._touched)

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
        changes = await self._answer(method, event, ctx, at)
        if changes:
            self._queue.append(Queued(ctx.envelope, changes))

    async def _answer(
        self, method: EventMethod, event: Any, ctx: Context, at: ModelSession | None
    ) -> tuple[Change, ...]:
        """Call a method; tell what it brings upon itself from what the database does."""
        assert self._ground is not None  # noqa: S101 - events come by way of `apply`
        (connection, fate), within = self._ground, innermost(ctx.session)
        try:
            with answering_for_itself():
                changes = await method.changes(event, ctx.envelope, at)
            if connection.invalidated:
                raise ConnectionClosed  # noqa: TRY301 - as if the method had said so
            if at is not None and innermost(ctx.session) is not within:
                raise UnitOfWorkError(_ENDED)  # noqa: TRY301 - as if the method had said so
            if at is not None and is_undone(connection):
                raise StatementFailed  # noqa: TRY301 - as if the method had said so
        except Exception as error:
            if is_away_under(connection, fate):
                raise DatabaseAway(error) from error
            raise _OwnFault(on_session=at is not None) from error
        return changes


def refuse_away(error: Exception) -> None:
    """Raise what the database did by itself: no event is to blame."""
    if isinstance(error, DatabaseAway) or is_away(error):
        raise error


Apply = Callable[[AsyncSession, Generation, Applier, Sequence[Entry]], Awaitable[Applied]]
"""Apply the events of a batch, all of them or as far as there is time."""


async def together(
    session: AsyncSession, at: Generation, applier: Applier, entries: Sequence[Entry]
) -> Applied:
    """Apply a batch as a whole."""
    del at
    return await applier.apply(session, entries)


async def one_by_one(
    session: AsyncSession, at: Generation, applier: Applier, entries: Sequence[Entry]
) -> Applied:
    """Apply events each by itself, so that whatever fails has a name; raise `FailedEntry`.

    The end of its savepoint tells also of a statement that had failed and was passed over.
    """
    del at
    count, touched = 0, set[tuple[str, str]]()
    for entry in entries:
        try:
            applied = await in_savepoint(session, partial(applier.apply, session, [entry]))
        except Exception as error:  # noqa: BLE001 - whatever a method or a write may raise
            found = error.error if isinstance(error, Spoiled) else error
            refuse_away(found)
            if isinstance(found, FailedEntry):
                raise found from found.__cause__
            raise FailedEntry(entry) from found
        count, touched = count + applied.events, touched | applied.touched
    return Applied(count, touched)
