"""The query side: read rows of a model, and wait until it has reached an event."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Protocol, TypeVar
from uuid import UUID

from sqlalchemy import Column, Select, select
from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox.errors import InvalidRequest, ReadModelBehind, ReadModelUnknown
from pillarbox.outbox.capture import SETTINGS
from pillarbox.outbox.settings import CaptureSettings
from pillarbox.readmodel.cache import RowCache
from pillarbox.readmodel.cached_row import Row, decoded, encoded
from pillarbox.readmodel.checkpoint import Checkpoints, Generation
from pillarbox.readmodel.definition import TENANT_COLUMN, ReadModel
from pillarbox.readmodel.subscription import subscriber
from pillarbox.schema.tables import inbox, outbox, readmodel_held, table_in
from pillarbox.tenancy import DEFAULT_TENANT, Tenancy

Query = TypeVar("Query", contravariant=True)  # noqa: PLC0105 - a word of the domain
Cached = TypeVar("Cached")
Answer = TypeVar("Answer", covariant=True)  # noqa: PLC0105 - a word of the domain

log = logging.getLogger("pillarbox.readmodel")

_PAUSE: Final = 0.01
_LONGEST_PAUSE: Final = 0.1
_MOST: Final = 1_000


class QueryHandler(Protocol[Query, Answer]):
    """Answer one kind of query from a read model; commands have handlers of their own."""

    async def handle(self, query: Query) -> Answer:
        """Return the answer; never change anything."""
        ...


class ReadDAO:
    """Read the rows of a model for one tenant, for query handlers.

        plans = ReadDAO(session, RoutePlans, tenant_id="acme")
        plan = await plans.get("plan-1")

    Without `tenant_id` the tenant is that of the context; where tenancy is required, which sessions of
    an application know, there must be one. With a `cache`, `get` answers from it, and fills it with
    rows that it can give back as they are; while the cache is away it reads the table.
    """

    def __init__(
        self,
        session: AsyncSession,
        model: type[ReadModel] | ReadModel,
        *,
        tenant_id: str = DEFAULT_TENANT,
        cache: RowCache | None = None,
        tenancy: Tenancy | None = None,
    ) -> None:
        self._session, self._model, self._cache = session, model, cache
        tenancy = tenancy or _tenancy_of(session)
        self._tenant_id = tenancy.resolve(tenant_id, "reading a model")

    async def get(self, row_id: object) -> Row | None:
        """Return one row, or None."""
        if self._cache is None:
            return await self._read(row_id)
        place = (self._tenant_id, str(row_id))
        found = await self._from_cache(self._cache.get(self._model.name, place))
        if found is not None and found.content is not None:
            return decoded(found.content, self._columns())
        row = await self._read(row_id)
        content = None if row is None else encoded(row, self._columns())
        if found is not None and content is not None:
            await self._from_cache(self._cache.put(self._model.name, place, content, found.token))
        return row

    async def find(self, *, limit: int = 100, after: object = None, **equal: Any) -> Sequence[Row]:
        """Return rows with these values by id; go on after the last one's id."""
        if not 1 <= limit <= _MOST:
            raise InvalidRequest(
                "limit", f"is {limit}", f"use 1 to {_MOST:,}, and go on from there"
            )
        table, key = self._model.table, self._model.table.c[self._model.id_column]
        for name in equal:
            if name not in table.c:
                raise InvalidRequest(name, "is no column", f"use a column of {table.name}")
        query = self._select().where(*(table.c[name] == value for name, value in equal.items()))
        if after is not None:
            query = query.where(key > after)
        rows = await self._session.execute(query.order_by(key).limit(limit))
        return [dict(row) for row in rows.mappings()]

    async def _from_cache(self, answer: Awaitable[Cached]) -> Cached | None:
        """Wait for the cache; without it rows are read from their table."""
        try:
            return await answer
        except Exception as error:  # noqa: BLE001 - a cache of any kind; the table has the row
            name = type(error).__name__
            log.warning("cache_away", extra={"model": self._model.name, "error_class": name})
            return None

    async def _read(self, row_id: object) -> Row | None:
        key = self._model.table.c[self._model.id_column]
        found = await self._session.execute(self._select().where(key == row_id))
        row = found.mappings().one_or_none()
        return None if row is None else dict(row)

    def _select(self) -> Select[Any]:
        table = self._model.table
        columns = (column.label(column.key) for column in table.columns)
        return select(*columns).where(table.c[TENANT_COLUMN] == self._tenant_id)

    def _columns(self) -> Mapping[str, Column[Any]]:
        return {column.key: column for column in self._model.table.columns}


async def reached(
    session: AsyncSession,
    model: type[ReadModel] | ReadModel,
    event_id: UUID | str,
    *,
    tenant_id: str = DEFAULT_TENANT,
    schema: str | None = None,
    tenancy: Tenancy | None = None,
) -> bool:
    """Tell whether a model has applied an event that is committed, of the tenant as for `ReadDAO`."""
    tenancy = tenancy or _tenancy_of(session)
    tenant_id = tenancy.resolve(tenant_id, "waiting for a model")
    live = await Checkpoints(schema).find(session, model.name)
    if live is None:
        raise ReadModelUnknown(model.name)
    if live.source == "bus":
        table = table_in(inbox, schema)
        query = select(table.c.message_id).where(
            table.c.tenant_id == tenant_id,
            table.c.consumer == subscriber(live.name, live.generation),
            table.c.message_id == str(event_id),
        )
        return (await session.execute(query)).one_or_none() is not None
    log = table_in(outbox, schema)
    wanted = select(log.c.seq, log.c.key).where(
        log.c.tenant_id == tenant_id, log.c.id == UUID(str(event_id))
    )
    row = (await session.execute(wanted)).one_or_none()
    if row is None or not live.position.covers(row.seq):
        return False
    return not await _is_held(session, live, tenant_id, row, schema)


async def wait_until_reached(
    session: AsyncSession,
    model: type[ReadModel] | ReadModel,
    event_id: UUID | str,
    *,
    within: timedelta = timedelta(seconds=5),
    tenant_id: str = DEFAULT_TENANT,
    schema: str | None = None,
    tenancy: Tenancy | None = None,
) -> None:
    """Wait until a model has applied an event: read your own write.

        (event_id,) = await SqlAlchemyOutbox(session).add_many([StopAdded("plan-1", "Bern")])
        await session.commit()
        await wait_until_reached(session, RoutePlans, event_id, within=timedelta(seconds=2))

    Raise `ReadModelBehind` when the time is over. Each look is a short transaction of the session,
    which must have none of its own running. The tenant is found as for `ReadDAO`.
    """
    until, pause = time.monotonic() + within.total_seconds(), _PAUSE
    while True:
        async with session.begin():
            if await reached(
                session, model, event_id, tenant_id=tenant_id, schema=schema, tenancy=tenancy
            ):
                return
        left = until - time.monotonic()
        if left <= 0:
            raise ReadModelBehind(model.name, str(event_id), within)
        await asyncio.sleep(min(pause, left))
        pause = min(pause * 2, _LONGEST_PAUSE)


def _tenancy_of(session: AsyncSession) -> Tenancy:
    """Return the tenancy of the application that made a session; off for any other."""
    settings: CaptureSettings | None = session.info.get(SETTINGS)
    return Tenancy() if settings is None else settings.tenancy


async def _is_held(
    session: AsyncSession, live: Generation, tenant_id: str, row: Any, schema: str | None
) -> bool:
    table = table_in(readmodel_held, schema)
    query = select(table.c.seq).where(
        table.c.tenant_id == tenant_id,
        table.c.name == live.name,
        table.c.generation == live.generation,
        table.c.key == row.key,
        table.c.seq <= row.seq,
    )
    return (await session.execute(query)).one_or_none() is not None
