"""Build a read model again beside its readers: fill the shadow table, catch up, switch."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from sqlalchemy import Select, delete, insert, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker

from pillarbox.errors import (
    HistoryUndecided,
    InvalidConfig,
    ReadModelError,
    ReadModelUnknown,
    RebuildFailed,
)
from pillarbox.readmodel.applying import Batch, FailedEntry, one_by_one, refuse_away
from pillarbox.readmodel.checkpoint import Checkpoints, Generation
from pillarbox.readmodel.definition import ReadModel
from pillarbox.readmodel.history import FIRST
from pillarbox.readmodel.parts import Parts
from pillarbox.readmodel.position import Position
from pillarbox.readmodel.progress import Pace, Phase, Progress, Reporter, unheard
from pillarbox.readmodel.runner import LogFollower
from pillarbox.readmodel.savepoint import Spoiled, in_savepoint
from pillarbox.words import storable, words_of

log = logging.getLogger("pillarbox.readmodel")

Done = TypeVar("Done")

_CONSTRAINTS: Final = text("SET CONSTRAINTS ALL IMMEDIATE")
_REMEDY: Final = (
    "change the constraint and call rebuild again, which goes on from there, or mend the method, call "
    "abandon and then rebuild, which begins with the first event"
)


class LogRebuild:
    """Build a model that follows the log again, while it is read and kept up to date.

        await LogRebuild(RoutePlans(), Parts(session_factory), report=print).run()

    It may be stopped and killed at any time: the next `run` goes on where the last commit ended.
    `snapshot` is a query for the first rows, with the table's columns in any order; it stands for all events
    that are committed when the rebuild begins, and is refused where one has begun already. While an open
    transaction may own what is missing in the log, `run` waits for it.
    """

    def __init__(
        self,
        model: ReadModel,
        parts: Parts,
        *,
        snapshot: Select[*tuple[Any, ...]] | None = None,
        report: Reporter = unheard,
    ) -> None:
        self._model, self._parts, self._report = model, parts, report
        self._snapshot = None if snapshot is None else _checked_snapshot(model, snapshot)
        self._checkpoints = Checkpoints(parts.schema)
        self._follower = LogFollower(model, parts, "filling")
        self._own: int | None = None
        """The generation that was begun here."""

    async def run(self) -> None:
        """Begin or go on, fill, switch, clean up."""
        way = _Way(await self._decided(self.begin))
        at = await self._decided(lambda: self._fill_and_switch(way))
        await self.clean_up()
        self._report(way.progress("done", at))

    async def _fill_and_switch(self, way: "_Way") -> Generation:
        while True:
            batch, at = await self.fill()
            self._report(way.progress("filling", at))
            if not batch.more:
                break
        self._report(way.progress("switching", at))
        return await self.switch()

    async def _decided(self, act: Callable[[], Awaitable[Done]]) -> Done:
        """Do again what nobody can decide yet: those who were open at its first look end some time."""
        said = False
        while True:
            try:
                return await act()
            except HistoryUndecided as error:
                if not said:
                    log.info("history_undecided", extra={"error": str(error)})
                said = True
            await asyncio.sleep(self._parts.config.look_every)

    async def begin(self) -> Generation:
        """Write the filling generation, unless one is there already; return it."""
        while (found := await self._begun()) is None:
            pass  # somebody else began in the same moment: a runner, or a rebuild to go on with
        return found

    async def _begun(self) -> Generation | None:
        name = self._model.name
        async with self._parts.transactions.begin(None) as gate:
            live = await self._checkpoints.find(gate, name)
            if live is not None:
                live = await self._checkpoints.alone(gate, name)
            found = await self._checkpoints.find(gate, name, "filling", lock=True)
            if found is not None:
                return self._resumed(found.following("log"))
            await self._parts.refuse_blindness(gate)
            async with self._seeing(gate) as session:
                await self._checkpoints.tidy(session, name)
                new = await self._first(session, live)
                # Whoever else begins waits for this row: only its owner may empty the shadow table.
                if not await self._checkpoints.begin(session, new):
                    return None
                await session.execute(delete(self._model.shadow))
                if self._snapshot is not None:
                    await self._fill_from(session, self._snapshot)
        self._own = new.generation
        log.info("rebuild_begun", extra={"model": name, "generation": new.generation})
        return new

    def _resumed(self, found: Generation) -> Generation:
        """Go on with a generation; one that began without our snapshot query is not to be had with it."""
        if self._snapshot is not None and found.generation != self._own:
            raise InvalidConfig(
                "snapshot",
                f"comes too late: a rebuild of {found.name!r} has begun, and stands at position "
                f"{found.position.number}",
                "go on without it, or call abandon and begin again",
            )
        return found

    async def fill(self) -> tuple[Batch, Generation]:
        """Apply one batch to the shadow table, and commit it."""
        async with self._parts.transactions.begin(None) as session:
            at = await self._again(session)
            await self._follower.refuse_hole(session, at)
            batch = await self._step(session, at)
            at = await self._again(session)
            if batch.more and at.position.number >= (at.target or 0):
                # The log has grown since the rebuild began.
                at = replace(at, target=await self._follower.log.newest(session))
        return batch, at

    async def switch(self) -> Generation:
        """Make the filled generation the live one, in one transaction; nobody reads half of it."""
        async with self._parts.transactions.begin(None) as session:
            name = self._model.name
            live = await self._checkpoints.alone(session, name)
            new = await self._checkpoints.find(session, name, "filling", lock=True)
            if new is None:
                raise ReadModelUnknown(name)
            await self._follower.refuse_hole(session, new)
            # The live runner waits for its row: what is left is what was committed meanwhile.
            while (await self._step(session, new)).more:
                new = await self._again(session)
            new = await self._again(session)
            await replace_rows(session, self._model)
            await self._checkpoints.switch(session, live, new)
        await self._follower.forgetting.forget_everything()
        log.info("rebuild_switched", extra={"model": name, "generation": new.generation})
        return new

    async def clean_up(self) -> None:
        """Delete what is left of the old generation."""
        name = self._model.name
        async with self._parts.transactions.begin(None) as session:
            # Nobody begins to fill the shadow table while the live row is locked.
            live = await self._checkpoints.alone(session, name)
            filling = await self._checkpoints.find(session, name, "filling")
            if live is not None and filling is None:
                await session.execute(delete(self._model.shadow))
            await self._checkpoints.tidy(session, name)

    async def abandon(self) -> None:
        """Give up a rebuild; the live table is as it was."""
        async with self._parts.transactions.begin(None) as session:
            name = self._model.name
            found = await self._checkpoints.find(session, name, "filling", lock=True)
            if found is None:
                return
            await session.execute(delete(self._model.shadow))
            await self._checkpoints.drop(session, name, found.following("log").generation)

    async def _first(self, session: AsyncSession, live: Generation | None) -> Generation:
        position, began = Position(), None
        if self._snapshot is not None:
            # Its rows stand for events that the log need not have: only a whole log replaces them.
            position = await self._follower.log.here(session)
        else:
            began = await self._oldest(session, live)
        return Generation(
            name=self._model.name,
            generation=await self._checkpoints.next_generation(session, self._model.name),
            source="log",
            state="filling",
            position=position,
            first_position=began,
            target=await self._follower.log.newest(session),
        )

    async def _oldest(self, session: AsyncSession, live: Generation | None) -> int:
        """Return where the log begins; refuse one that was cut."""
        beginning = await self._follower.log.beginning(session)
        first = FIRST if live is None or live.first_position is None else live.first_position
        self._follower.refuse_cut(beginning, first)
        return beginning.oldest or FIRST

    async def _again(self, session: AsyncSession) -> Generation:
        found = await self._checkpoints.find(session, self._model.name, "filling", lock=True)
        if found is None:
            raise ReadModelUnknown(self._model.name)  # somebody else has switched or given up
        return found

    async def _step(self, session: AsyncSession, at: Generation) -> Batch:
        """Apply one batch; where it fails, find the event that did it."""
        try:
            try:
                return await in_savepoint(session, partial(self._follower.step, session, at))
            except Spoiled as spoiled:
                refuse_away(spoiled.error)
                raise spoiled.error from spoiled.error.__cause__
            except Exception as error:
                refuse_away(error)
                if isinstance(error, FailedEntry) and not error.on_session:
                    raise
                return await self._follower.step(session, at, one_by_one)
        except FailedEntry as failed:
            entry, cause = failed.entry, failed.__cause__
            reason = f"{type(cause).__name__}: {storable(words_of(cause))}"
            raise RebuildFailed(at.name, entry.event_id, entry.seq, reason) from cause

    async def _fill_from(self, session: AsyncSession, snapshot: Select[*tuple[Any, ...]]) -> None:
        rows = snapshot.subquery()
        names = [column.key for column in rows.columns]
        columns = [rows.c[name] for name in names]
        await session.execute(insert(self._model.shadow).from_select(names, select(*columns)))

    @asynccontextmanager
    async def _seeing(self, gate: AsyncSession) -> AsyncIterator[AsyncSession]:
        """Begin in one snapshot, if a query must see the same as the log's position.

        It is taken behind the gate, which has waited for the live runner: a transaction that waits for
        a row after its snapshot was taken may not have it when it has changed.
        """
        factory = None if self._snapshot is None else _repeatable(self._parts.session_factory)
        if factory is None:
            yield gate
            return
        async with replace(self._parts, session_factory=factory).transactions.begin(
            None
        ) as session:
            yield session


class _Way:
    """The way of one rebuild through the log, and its pace."""

    def __init__(self, at: Generation) -> None:
        # A log that was cut, and a snapshot query, begin in the middle.
        oldest = at.first_position
        self._start = at.position.number if oldest is None else oldest - 1
        self._pace = Pace(max(at.position.number, self._start), at.events)

    def progress(self, phase: Phase, at: Generation) -> Progress:
        position = max(at.position.number, self._start)
        speed, rate = self._pace.at(position, at.events)
        return Progress(
            model=at.name,
            phase=phase,
            position=position,
            target=position if phase == "done" else max(at.target or 0, position),
            start=self._start,
            events=at.events,
            events_per_second=rate,
            positions_per_second=speed,
        )


async def replace_rows(session: AsyncSession, model: ReadModel) -> None:
    """Replace all rows of a model by the shadow's; readers see the old ones until the commit."""
    live, shadow = model.table, model.shadow
    names = [column.key for column in live.columns if column.computed is None]
    rows = select(*(shadow.c[name] for name in names))
    try:
        await session.execute(delete(live))
        await session.execute(insert(live).from_select(names, rows))
        if session.get_bind().dialect.name == "postgresql":
            # What is deferred would raise at the commit, where nobody knows whose it is.
            await session.execute(_CONSTRAINTS)
    except DBAPIError as error:
        refuse_away(error)
        # The live table may have constraints that the shadow has not, and others that refer to it.
        reason = f"its rows are not taken by {live.name}: {storable(words_of(error))}"
        raise RebuildFailed(model.name, None, None, reason, _REMEDY) from error


def _checked_snapshot(
    model: ReadModel, snapshot: Select[*tuple[Any, ...]]
) -> Select[*tuple[Any, ...]]:
    names = {column.key for column in snapshot.selected_columns}
    known = {column.key for column in model.table.columns}
    key = {column.key for column in model.table.primary_key}
    if not key <= names <= known:
        raise InvalidConfig(
            "snapshot",
            f"has the columns {', '.join(sorted(map(str, names)))}",
            f"select {', '.join(sorted(map(str, key)))} and other columns of {model.table.name}",
        )
    return snapshot


def _repeatable(factory: Any) -> Any:
    """Return a factory of sessions that see one snapshot; None where every transaction does."""
    bind = factory.kw.get("bind") if isinstance(factory, async_sessionmaker) else None
    if not isinstance(bind, AsyncEngine):
        raise ReadModelError("a snapshot query needs a sessionmaker that is bound to an engine")
    if bind.dialect.name != "postgresql":
        return None  # one writer at a time: nothing is committed in between
    engine = bind.execution_options(isolation_level="REPEATABLE READ")
    return lambda: factory(bind=engine)
