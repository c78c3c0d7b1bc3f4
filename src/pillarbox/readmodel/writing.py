"""Changes into a table: read what they touch, fold in memory, write each row once."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy import Table, and_, delete, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox.errors import InvalidConfig
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.readmodel.changes import Change
from pillarbox.readmodel.definition import TENANT_COLUMN, ReadModel
from pillarbox.readmodel.folding import Author, Mark, Page, Row, author_of
from pillarbox.readmodel.locks import lock_of
from pillarbox.readmodel.numbers import converts, fits, places_of
from pillarbox.schema.tables import readmodel_applied, table_in

Item = TypeVar("Item")
# A statement has 32,767 parameters at most with asyncpg, 65,535 with psycopg.
_SLICE: Final = 5_000


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
        self._places = {
            column.key: places
            for column in self.table.columns
            if (places := places_of(column)) is not None and not converts(column)
        }
        self._alone = alone
        """Whether no other transaction writes to the table: else each row is locked by its name."""

    async def write(
        self, session: AsyncSession, tenant_id: str, queued: Sequence[Queued]
    ) -> set[str]:
        """Let the changes of one tenant's events take effect in order; return the rows written."""
        changes = [(queued_.envelope, c) for queued_ in queued for c in queued_.changes]
        if not changes:
            return set()
        for _, change in changes:
            self._check(change)
        ids = {str(change.row_id): change.row_id for _, change in changes}
        if not self._alone:
            await self._lock(session, tenant_id, ids)
        authors = {a for envelope, change in changes if (a := author_of(envelope, change))}
        page = Page(
            await self._rows(session, tenant_id, ids.values()),
            await self._marks(session, tenant_id, authors),
            defaults=dict(self.model.defaults),
        )
        for envelope, change in changes:
            page.apply(change, envelope, self.model.id_column)
        await self._store(session, tenant_id, ids, page)
        return page.written

    def _check(self, change: Change) -> None:
        own = {TENANT_COLUMN, self.model.id_column}
        for name, value in change.values.items():
            if name not in self.table.c or name in own:
                problem = "is set by the runner" if name in own else "is no column"
                raise InvalidConfig(
                    f"{self.model.name}: {name}", problem, f"use a column of {self.table.name}"
                )
            places = self._places.get(name)
            if isinstance(value, float | Decimal) and not fits(value, places):
                # In a batch it would be added up as it is, and one by one as the database rounds it.
                raise InvalidConfig(
                    f"{self.model.name}: {name}",
                    f"is {value}, and its column keeps {places} places",
                    "round it in the method, or give the column more places",
                )

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
