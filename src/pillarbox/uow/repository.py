"""Repositories: where a unit of work saves and finds aggregates."""

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox.event.aggregate import AggregateRoot

A = TypeVar("A", bound=AggregateRoot)


class Repository(Protocol[A]):
    """Save and find one kind of aggregate inside a unit of work's transaction.

    Neither commits. `save` writes with a version check: a stale aggregate raises
    `sqlalchemy.orm.exc.StaleDataError`.
    """

    async def save(self, aggregate: A) -> None:
        """Make the aggregate's state part of the transaction."""
        ...

    async def get(self, aggregate_id: Any) -> A | None:
        """Return an aggregate by its id."""
        ...


RepositoryFactory = Callable[[AsyncSession], Repository[Any]]


class MappedRepository(Generic[A]):
    """The repository of a mapped class, which needs no code of its own."""

    def __init__(self, session: AsyncSession, kind: type[A]) -> None:
        self._session, self._kind = session, kind

    async def save(self, aggregate: A) -> None:
        """Add the aggregate to the session; it is written at the next flush."""
        self._session.add(aggregate)

    async def get(self, aggregate_id: Any) -> A | None:
        """Return an aggregate by its primary key."""
        return await self._session.get(self._kind, aggregate_id)

    async def delete(self, aggregate: A) -> None:
        """Delete the aggregate's row at the next flush."""
        await self._session.delete(aggregate)


class TrackedRepository(Generic[A]):
    """A repository whose aggregates the unit of work tracks.

    `save`, `get` and `delete` track what they are given or return; anything else the repository
    offers is passed through, and `uow.track(…)` serves there.
    """

    def __init__(self, inner: Any, track: Callable[[AggregateRoot], None]) -> None:
        self._inner, self._track = inner, track

    async def save(self, aggregate: A) -> None:
        """Save an aggregate and track it."""
        await self._inner.save(aggregate)
        self._track(aggregate)

    async def get(self, aggregate_id: Any) -> A | None:
        """Find an aggregate by its id and track it."""
        found: A | None = await self._inner.get(aggregate_id)
        if found is not None:
            self._track(found)
        return found

    async def delete(self, aggregate: A) -> None:
        """Delete an aggregate; events that it raised are recorded all the same."""
        await self._inner.delete(aggregate)
        self._track(aggregate)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
