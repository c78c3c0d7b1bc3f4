"""The unit of work: business rows and event rows, one transaction."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self, TypeVar

from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from pillarbox.errors import InvalidConfig, NoActiveUnitOfWork, UnitOfWorkError
from pillarbox.event.aggregate import AggregateRoot
from pillarbox.outbox.capture import SETTINGS, TENANT, SessionCapture, make_capture
from pillarbox.outbox.mapped import is_mapped_class
from pillarbox.outbox.outbox import SqlAlchemyOutbox
from pillarbox.outbox.settings import CaptureSettings
from pillarbox.tenancy import DEFAULT_TENANT
from pillarbox.uow.joining import has_joined, is_over, leave, running_transaction
from pillarbox.uow.outcome import CommitUnknown, is_unknown
from pillarbox.uow.repository import MappedRepository, RepositoryFactory, TrackedRepository
from pillarbox.uow.running import let_go

A = TypeVar("A", bound=AggregateRoot)

SessionFactory = async_sessionmaker[AsyncSession] | Callable[[], AsyncSession]


class SQLAlchemyUnitOfWork:
    """Commit aggregates and the events they raised together; roll back unless told to commit.

        async with SQLAlchemyUnitOfWork(session_factory) as uow:
            order = Order.create(customer_id, items)
            await uow.repository(Order).save(order)
            await uow.commit()

    A mapped class needs no repository; for others pass `repositories={Order: OrderRepository}`,
    where `OrderRepository(session)` has `save` and `get`.

    Inside an idempotent route or a consumer's handler it joins the running transaction: `commit`
    arms it, and the owner commits. `independent=True` gives it a transaction of its own there too.
    """

    def __init__(
        self,
        session_factory: SessionFactory,
        *,
        tenant_id: str = DEFAULT_TENANT,
        service: str | None = None,
        repositories: Mapping[type[Any], RepositoryFactory] | None = None,
        settings: CaptureSettings | None = None,
        independent: bool = False,
    ) -> None:
        self._factory = session_factory
        self._tenant_id = tenant_id
        self._service = service
        self._repositories = dict(repositories or {})
        self._settings = settings
        self._independent = independent
        self._session: AsyncSession | None = None
        self._capture: SessionCapture | None = None
        self._ended: str | None = None

    async def __aenter__(self) -> Self:
        if self._session is not None or self._ended is not None:
            raise UnitOfWorkError("a unit of work serves once; make a new one for each transaction")
        session = self._factory()
        if not isinstance(session, AsyncSession):
            raise InvalidConfig(
                "session_factory", f"makes a {type(session).__name__}", "use an async_sessionmaker"
            )
        settings = CaptureSettings.chosen(
            self._settings or session.info.get(SETTINGS), self._service
        )
        session.info["uow"] = self
        session.info[SETTINGS] = settings
        session.info.pop(TENANT, None)  # a factory may hand out a session that served before
        if self._tenant_id != DEFAULT_TENANT:
            session.info[TENANT] = self._tenant_id
        self._capture = make_capture(session.sync_session, settings)
        running = None if self._independent else running_transaction()
        if running is not None:
            await running.join(session)
        self._session = session
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        session, self._session = self._session, None
        self._ended = self._ended or "left its block"
        if session is not None:
            await _close(session)

    @property
    def session(self) -> AsyncSession:
        """The session of this unit of work, while it is open."""
        if self._session is None or self._ended is not None:
            raise NoActiveUnitOfWork(
                f"this unit of work has {self._ended}; make a new one for more work"
                if self._ended
                else "this unit of work is not entered; write `async with … as uow:`"
            )
        if is_over(self._session):
            raise NoActiveUnitOfWork(
                "the transaction that this unit of work joined has ended, and its work with it; "
                "make a new one for more work"
            )
        return self._session

    @property
    def outbox(self) -> SqlAlchemyOutbox:
        """An outbox on this unit of work's session, for events that no aggregate raises."""
        return SqlAlchemyOutbox(self.session, self._tenant_id, settings=self._open().settings)

    def repository(self, kind: type[A]) -> TrackedRepository[A]:
        """Return the repository of an aggregate class."""
        factory = self._repositories.get(kind)
        if factory is not None:
            return TrackedRepository(factory(self.session), self.track)
        if is_mapped_class(kind):
            return TrackedRepository(MappedRepository(self.session, kind), self.track)
        raise InvalidConfig(
            f"repository of {kind.__name__}",
            "is not known and the class is not mapped",
            f"pass repositories={{{kind.__name__}: …}} or call box.repository(…)",
        )

    def track(self, aggregate: AggregateRoot) -> None:
        """Record this aggregate's events at the commit; harmless when it is tracked already."""
        if not isinstance(aggregate, AggregateRoot):
            raise UnitOfWorkError(
                f"{type(aggregate).__name__} is no AggregateRoot and cannot raise events; "
                "derive its class from AggregateRoot"
            )
        self._open().track(aggregate)

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        """Run a part that may fail alone: its changes and its events are undone together."""
        async with self.session.begin_nested():
            yield

    async def commit(self) -> None:
        """Write the events after the business rows and commit both.

        Raises `StaleDataError` when another transaction changed an aggregate first, and
        `CommitUnknown` when the connection is lost during COMMIT. An error before COMMIT leaves
        the transaction to be rolled back by the end of the block. Cancelled during COMMIT, the
        connection is thrown away, and whether it took effect is unknown as well. In a running
        transaction nothing is committed yet: the owner does that.
        """
        session, capture = self.session, self._open()
        if capture.closed:
            raise UnitOfWorkError(
                "the session was closed inside this unit of work, so its changes are gone; "
                "leave the session to the unit of work, and repeat the work in a new one"
            )
        await session.run_sync(lambda _: capture.write())
        self._ended = "committed"
        try:
            await session.commit()
        except (DBAPIError, OSError) as error:
            self._ended = "failed to commit"
            if is_unknown(error) and not has_joined(session):
                raise CommitUnknown(capture.transaction_id) from error
            raise

    async def rollback(self) -> None:
        """Undo everything and end this unit of work."""
        session = self.session
        self._ended = "rolled back"
        await session.rollback()

    def _open(self) -> SessionCapture:
        if self._capture is None or self.session is None:
            raise NoActiveUnitOfWork("this unit of work is not entered")
        return self._capture


async def _close(session: AsyncSession) -> None:
    if not session.in_transaction():
        session.sync_session.close()  # nothing is open, so nothing is waited for
        leave(session)
        return
    try:
        # A close alone would leave new aggregates looking as if they were stored.
        if not await let_go(session):
            await session.rollback()
    finally:
        await session.close()
        leave(session)
