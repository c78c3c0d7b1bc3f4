"""The lowest layer: rows in and out of one table, with a version check. Copy it as it is."""

from typing import Any, Generic, TypeVar, cast

from sqlalchemy import CursorResult, inspect, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.orm.exc import StaleDataError

Row = TypeVar("Row", bound=DeclarativeBase)


class SaBaseRepo(Generic[Row]):
    """Read, insert and update the rows of a mapped class that has `id` and `version`.

    For a class that is `TenantScoped`, the session sees to it that all rows are its tenant's own.
    """

    def __init__(self, session: AsyncSession, kind: type[Row]) -> None:
        self._session, self._kind = session, kind

    async def find(self, row_id: Any) -> Row | None:
        query = select(self._kind).where(inspect(self._kind).columns["id"] == row_id)
        return await self._session.scalar(query, execution_options={"populate_existing": True})

    async def insert(self, row: Row) -> None:
        self._session.add(row)
        await self._session.flush()

    async def update(self, row_id: Any, version: int, values: dict[str, Any]) -> None:
        """Write a new version; raise `StaleDataError` when another transaction was first."""
        columns = inspect(self._kind).columns
        result = await self._session.execute(
            update(self._kind)
            .where(columns["id"] == row_id, columns["version"] == version)
            .values(**values, version=version + 1)
            .execution_options(synchronize_session=False)
        )
        if cast("CursorResult[Any]", result).rowcount != 1:
            raise StaleDataError(f"{self._kind.__name__} {row_id} is no longer at {version}")
