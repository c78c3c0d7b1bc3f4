"""How far a model's generations are, inside the transactions of others."""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, Literal

from sqlalchemy import ColumnElement, delete, func, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox.errors import ReadModelSourceChanged
from pillarbox.readmodel.locks import alone, side_by_side
from pillarbox.readmodel.position import Position
from pillarbox.schema.tables import (
    readmodel,
    readmodel_applied,
    readmodel_held,
    readmodel_member,
    table_in,
)
from pillarbox.schema.types import DatabaseTime

Source = Literal["log", "bus"]
State = Literal["live", "filling"]
Touched = list[list[str]]
"""Rows by tenant and id, as texts."""
EVERYTHING: Final = ("", "")
"""Stands in a list of rows for all of them; no row has an empty id."""

BEGINNING: Final = Position()
STILL: Final = timedelta(seconds=30)
"""How long the live generation stands still without a renewal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One generation of a model: what it reads, and how far it is."""

    name: str
    generation: int
    source: Source
    state: State
    position: Position = BEGINNING
    first_position: int | None = None
    target: int | None = None
    events: int = 0
    paused: bool = False
    touched: tuple[tuple[str, str], ...] = ()

    def following(self, source: Source) -> "Generation":
        """Return it if it reads this source: its position says nothing of another."""
        if self.source != source:
            raise ReadModelSourceChanged(self.name, self.state, self.source, source)
        return self


class Checkpoints:
    """Read and write the rows of models."""

    def __init__(self, schema: str | None = None) -> None:
        self._schema = schema
        self._table = table_in(readmodel, schema)
        self._applied = table_in(readmodel_applied, schema)
        self._held = table_in(readmodel_held, schema)
        self._members = table_in(readmodel_member, schema)

    async def find(
        self, session: AsyncSession, name: str, state: State = "live", *, lock: bool = False
    ) -> Generation | None:
        """Return a model's generation in a state; `lock` keeps every other writer out of it."""
        query = select(self._table).where(self._table.c.name == name, self._table.c.state == state)
        query = query.with_for_update() if lock else query
        row = (await session.execute(query)).mappings().one_or_none()
        if row is None and lock:
            # The lock may have waited for a switch, which took this row away: look with new eyes.
            row = (await session.execute(query)).mappings().one_or_none()
        return None if row is None else _generation(dict(row))

    async def alone(self, session: AsyncSession, name: str) -> Generation | None:
        """Lock and return the live generation of a model, in turn with all that `goes_on` has let in.

        What they have begun is committed first; whoever comes later waits.
        """
        if _dialect(session) == "postgresql":
            await session.execute(alone(name, self._schema))
        return await self.find(session, name, lock=True)

    async def next_generation(self, session: AsyncSession, name: str) -> int:
        """Return the number of a generation that begins now: one that none has had.

        One that was given up is known by what its members told.
        """
        tables = self._table, self._members
        found = [select(func.max(t.c.generation)).where(t.c.name == name) for t in tables]
        highest = await session.execute(select(*(query.scalar_subquery() for query in found)))
        return max(number or 0 for number in highest.one()) + 1

    async def goes_on(
        self, session: AsyncSession, name: str, generation: int, state: State
    ) -> bool:
        """Tell whether a generation follows a subscription, is in a state and may write.

        It is kept so until the commit: whoever changes that has the row to himself (`FOR UPDATE`). What
        is only counted there may be written meanwhile.
        """
        if _dialect(session) == "postgresql":
            await session.execute(side_by_side(name, self._schema))
        columns = self._table.c
        query = select(columns.state, columns.source, columns.paused)
        query = query.where(*self._of(name, generation))
        query = query.with_for_update(read=True, key_share=True)
        row = (await session.execute(query)).one_or_none()
        if row is None or (row.source, row.state) != ("bus", state):
            return False
        # Asked after the lock, which may have waited for whoever wrote the mark.
        return state == "filling" or not (row.paused or await self.stands_still(session, name))

    async def hold_still(self, session: AsyncSession, name: str, *, still: bool) -> None:
        """Have the live generation stand still for the one that is being filled, or go on.

        The mark stands in the filling row: the operator's is not touched. It is good for a while, and to
        be renewed: if whoever fills the generation dies, the live one goes on.
        """
        await self.alone(session, name)
        columns = self._table.c
        await session.execute(
            update(self._table)
            .where(columns.name == name, columns.state == "filling")
            .values(paused=int(still), moved_at=DatabaseTime())
        )

    async def stands_still(self, session: AsyncSession, name: str) -> bool:
        """Tell whether the live generation is to stand still for the one that is being filled."""
        columns = self._table.c
        query = select(columns.generation).where(
            columns.name == name,
            columns.state == "filling",
            columns.paused == 1,
            columns.moved_at > DatabaseTime(after=-STILL),
        )
        return await session.scalar(query) is not None

    async def begin(self, session: AsyncSession, new: Generation) -> bool:
        """Write a generation, unless it is there; return whether it was written."""
        insert: Any = postgresql.insert if _dialect(session) == "postgresql" else sqlite.insert
        values = {
            "name": new.name,
            "generation": new.generation,
            "source": new.source,
            "state": new.state,
            "position": new.position.number,
            "gaps": new.position.to_json(),
            "first_position": new.first_position,
            "target": new.target,
            "events": new.events,
        }
        statement = insert(self._table).values(**values).on_conflict_do_nothing()
        written = await session.execute(statement.returning(self._table.c.generation))
        return written.one_or_none() is not None

    async def move(
        self,
        session: AsyncSession,
        at: Generation,
        position: Position,
        *,
        events: int,
        touched: Touched,
    ) -> None:
        """Move a generation that this transaction has locked."""
        await session.execute(
            update(self._table)
            .where(*self._of(at.name, at.generation))
            .values(
                position=position.number,
                gaps=position.to_json(),
                events=self._table.c.events + events,
                touched=touched,
                moved_at=func.now(),
            )
        )

    async def note(
        self, session: AsyncSession, at: Generation, *, events: int, target: int | None
    ) -> None:
        """Note how many messages a generation that is being filled has had, and how many there are.

        It waits for nobody who writes the model, and nobody who writes it waits for this.
        """
        await session.execute(
            update(self._table)
            .where(*self._of(at.name, at.generation), self._table.c.state == "filling")
            .values(position=events, target=target, events=events)
        )

    async def switch(self, session: AsyncSession, old: Generation | None, new: Generation) -> None:
        """Make a filling generation the live one, in the transaction that has locked both."""
        # Nobody counts what a live subscription takes.
        counted = {"position": 0, "events": 0} if new.source == "bus" else {}
        if old is not None:
            await session.execute(delete(self._table).where(*self._of(old.name, old.generation)))
        await session.execute(
            update(self._table)
            .where(*self._of(new.name, new.generation))
            .values(
                state="live",
                target=None,
                paused=int(old.paused if old else False),
                # Whoever has a cache, now or after a crash, forgets the old generation's rows.
                touched=[list(EVERYTHING)],
                **counted,
            )
        )

    async def forgotten(self, session: AsyncSession, at: Generation) -> None:
        """Note that no cached row of a generation is left to be removed, unless it has moved since."""
        await self.alone(session, at.name)
        found = await self.find(session, at.name, at.state, lock=True)
        if found is not None and replace(found, paused=at.paused) == at:
            await session.execute(
                update(self._table).where(*self._of(at.name, at.generation)).values(touched=[])
            )

    async def drop(self, session: AsyncSession, name: str, generation: int) -> None:
        """Delete a generation with its books."""
        await session.execute(delete(self._table).where(*self._of(name, generation)))
        await self.tidy(session, name)

    async def tidy(self, session: AsyncSession, name: str) -> None:
        """Delete the books of generations that are gone."""
        kept = select(self._table.c.generation).where(self._table.c.name == name)
        newest = select(func.max(self._table.c.generation)).where(self._table.c.name == name)
        for table in (self._applied, self._held, self._members):
            gone = [table.c.name == name, table.c.generation.not_in(kept)]
            if table is self._members:  # one above was given up: its number is not to be had again
                gone.append(table.c.generation < newest.scalar_subquery())
            await session.execute(delete(table).where(*gone))

    def _of(self, name: str, generation: int) -> tuple[ColumnElement[bool], ...]:
        return (self._table.c.name == name, self._table.c.generation == generation)


def _dialect(session: AsyncSession) -> str:
    return session.sync_session.get_bind().dialect.name


def _generation(row: dict[str, Any]) -> Generation:
    return Generation(
        name=row["name"],
        generation=row["generation"],
        source=row["source"],
        state=row["state"],
        position=Position.of(row["position"], row["gaps"]),
        first_position=row["first_position"],
        target=row["target"],
        events=row["events"],
        paused=bool(row["paused"]),
        touched=tuple((tenant_id, row_id) for tenant_id, row_id in row["touched"]),
    )
