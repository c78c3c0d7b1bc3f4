"""Changes into a table: read what they touch, fold in memory, write each row once."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from decimal import Context, Decimal, localcontext
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy import Table, and_, delete, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox.errors import InvalidConfig
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.readmodel.changes import Change, Increment
from pillarbox.readmodel.definition import TENANT_COLUMN, ReadModel
from pillarbox.readmodel.folding import Author, Mark, Page, Row, author_of
from pillarbox.readmodel.locks import lock_of
from pillarbox.readmodel.numbers import Keeping, converts, fits, is_number
from pillarbox.schema.tables import readmodel_applied, table_in

Item = TypeVar("Item")
# A statement has 32,767 parameters at most with asyncpg, 65,535 with psycopg.
_SLICE: Final = 5_000
# A column may have more digits than Python adds up unless it is told: it rounds to 28.
_EXACT: Final = Context(prec=1_000)


class Queued(NamedTuple):
    """An event with the changes that its method answered."""

    envelope: MessageEnvelope
    changes: tuple[Change, ...]


class Writer:
    """Write the changes of one generation of a model into its table."""

    def __init__(
        self,
        model: ReadModel,
        generation: int,
        *,
        shadow: bool = False,
        schema: str | None = None,
        alone: bool = True,
    ) -> None:
        self.model, self.generation = model, generation
        self.table: Table = model.shadow if shadow else model.table
        self._applied = table_in(readmodel_applied, schema)
        self._numbers = {
            column.key: Keeping.of(column)
            for column in self.table.columns
            if is_number(column) and not converts(column)
        }
        self._alone = alone
        """Whether no other transaction writes to the table: else each row is locked by its name."""

    async def write(
        self, session: AsyncSession, tenant_id: str, queued: Sequence[Queued]
    ) -> set[str]:
        """Let the changes of one tenant's events take effect in order; return the rows written."""
        changes = [(one.envelope, self._checked(c)) for one in queued for c in one.changes]
        if not changes:
            return set()
        ids = {str(change.row_id): change.row_id for _, change in changes}
        if not self._alone:
            await self._lock(session, tenant_id, ids)
        authors = {a for envelope, change in changes if (a := author_of(envelope, change))}
        page = Page(
            await self._rows(session, tenant_id, ids.values()),
            await self._marks(session, tenant_id, authors),
            defaults=dict(self.model.defaults),
        )
        with localcontext(_EXACT):
            for envelope, change in changes:
                page.apply(change, envelope, self.model.id_column)
        await self._store(session, tenant_id, ids, page)
        return page.written

    def _checked(self, change: Change) -> Change:
        """Return a change with its numbers as their columns give them back; refuse what they do not keep."""
        values = {name: self._value(change, name) for name in change.values}
        if all(values[name] is value for name, value in change.values.items()):
            return change
        kept = copy(change)
        kept.values = values
        return kept

    def _value(self, change: Change, name: str) -> Any:
        value, keeping = change.values[name], self._numbers.get(name)
        own = (TENANT_COLUMN, self.model.id_column)
        if name not in self.table.c or name in own:
            problem = "is set by the runner" if name in own else "is no column"
            raise self._refused(name, problem, f"use a column of {self.table.name}")
        if keeping is None or not isinstance(value, int | float | Decimal):
            return value
        # In a batch it would be added up as it is, and one by one as the database gives it back.
        if not fits(value, keeping.places):
            problem = f"is {value}, and its column keeps {keeping.places} places"
            remedy = "round it in the method, or give the column more places"
            raise self._refused(name, problem, remedy)
        if isinstance(change, Increment) and not keeping.adds_up:
            problem = "is added to, and its column may give back another number than it was given"
            raise self._refused(name, problem, "make it a Double or a Numeric")
        return keeping.given_back(value)

    def _refused(self, name: str, problem: str, remedy: str) -> InvalidConfig:
        return InvalidConfig(f"{self.model.name}: {name}", problem, remedy)

    async def _lock(self, session: AsyncSession, tenant_id: str, ids: Iterable[str]) -> None:
        if _dialect(session) != "postgresql":
            return
        place = f"{self.model.name}\0{self.generation}\0{tenant_id}\0"
        locks = sorted(lock_of(place + row_id) for row_id in ids)
        for lock in locks:  # in one order, so that two of them never wait for each other
            await session.execute(select(func.pg_advisory_xact_lock(lock)))

    async def _rows(
        self, session: AsyncSession, tenant_id: str, ids: Iterable[object]
    ) -> dict[str, Row | None]:
        table, id_column = self.table, self.table.c[self.model.id_column]
        own = select(table).where(table.c[TENANT_COLUMN] == tenant_id)
        names = [column.key for column in table.columns]
        place, found = names.index(id_column.key), dict[str, Row | None]()
        for some in _slices(ids):
            for row in await session.execute(own.where(id_column.in_(some))):
                found[str(row[place])] = dict(zip(names, row, strict=True))
        return found

    async def _marks(
        self, session: AsyncSession, tenant_id: str, authors: set[Author]
    ) -> dict[Author, Mark]:
        columns, found = self._applied.c, dict[Author, Mark]()
        own = select(
            columns.aggregate_type, columns.aggregate_id, columns.version, columns.number
        ).where(
            columns.tenant_id == tenant_id,
            columns.name == self.model.name,
            columns.generation == self.generation,
        )
        for some in _slices(authors):
            query = own.where(
                columns.aggregate_type.in_({author.aggregate_type for author in some}),
                columns.aggregate_id.in_([author.aggregate_id for author in some]),
            )
            for row in await session.execute(query):
                found[Author(row[0], row[1])] = Mark(row[2], row[3])
        return found

    async def _store(
        self, session: AsyncSession, tenant_id: str, ids: Mapping[str, object], page: Page
    ) -> None:
        kept = [row for key in page.written if (row := page.rows[key]) is not None]
        id_column = self.table.c[self.model.id_column]
        own = self.table.c[TENANT_COLUMN] == tenant_id
        for gone in _slices(ids[key] for key in sorted(page.deleted)):
            await session.execute(delete(self.table).where(and_(own, id_column.in_(gone))))
        key = (TENANT_COLUMN, self.model.id_column)
        await _upsert(session, self.table, key, [{**row, TENANT_COLUMN: tenant_id} for row in kept])
        place = {
            "tenant_id": tenant_id,
            "name": self.model.name,
            "generation": self.generation,
        }
        marks = [
            {**place, **author._asdict(), **page.marks[author]._asdict()}
            for author in sorted(page.marked)
        ]
        names = (*place, *Author._fields)
        await _upsert(session, self._applied, names, marks)


async def _upsert(
    session: AsyncSession, table: Table, key: Sequence[str], rows: Sequence[Row]
) -> None:
    """Write whole rows, those with the same columns together."""
    groups: dict[frozenset[str], list[Row]] = {}
    for row in rows:
        groups.setdefault(frozenset(row), []).append(row)
    build: Any = postgresql.insert if _dialect(session) == "postgresql" else sqlite.insert
    for columns, group in groups.items():
        insert = build(table)
        changed = {
            name: insert.excluded[name]
            for name in columns
            if name not in key and table.c[name].computed is None
        }
        elements = [table.c[name] for name in key]
        statement = (
            insert.on_conflict_do_update(index_elements=elements, set_=changed)
            if changed
            else insert.on_conflict_do_nothing(index_elements=elements)
        )
        await session.execute(statement, [_written(table, row) for row in group])


def _slices(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Return items in lists that a statement can name one by one."""
    left = iter(items)
    while some := list(islice(left, _SLICE)):
        yield some


def _written(table: Table, row: Row) -> Row:
    return {name: value for name, value in row.items() if table.c[name].computed is None}


def _dialect(session: AsyncSession) -> str:
    return session.sync_session.get_bind().dialect.name
