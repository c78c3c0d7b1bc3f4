"""Pillarbox: the one object that holds settings and makes the parts."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker

from pillarbox.bus.connect import bus_from_url
from pillarbox.bus.message_bus import MessageBus
from pillarbox.database import make_engine, shown
from pillarbox.errors import DatabaseUnreachable, InvalidConfig
from pillarbox.event.encoders import DEFAULT_ENCODERS, DEFAULT_LIMITS, Encoders, PayloadLimits
from pillarbox.event.registry import EventRegistry
from pillarbox.outbox.notify import Notifier
from pillarbox.outbox.routing import RoutingPolicy
from pillarbox.outbox.schema.start_up import start_up_check
from pillarbox.outbox.settings import CaptureSettings
from pillarbox.projector.config import OutboxProjectorConfig
from pillarbox.projector.projector import OutboxProjector
from pillarbox.tenancy import Tenancy, TenantResolver
from pillarbox.uow.hook import collect_events
from pillarbox.uow.repository import RepositoryFactory
from pillarbox.uow.unit_of_work import SQLAlchemyUnitOfWork

log = logging.getLogger(__name__)

Lifespan = Callable[[Any], AbstractAsyncContextManager[None]]


class Pillarbox:
    """Hold a service's database, bus and settings; make sessions, units of work, the lifespan.

        box = Pillarbox("postgresql://app@db/orders", "nats://bus:4222", service="orders")
        app = FastAPI(lifespan=box.lifespan())

        @app.post("/orders", status_code=201)
        async def place(body: NewOrder, uow: Annotated[SQLAlchemyUnitOfWork, Depends(box.uow)]):
            ...

    `service` names the default topics' context and the source of the events. The engine is made
    on construction and connects on first use; `lifespan` checks the database and closes it.
    """

    def __init__(
        self,
        database: str | AsyncEngine,
        bus: str | MessageBus | None = None,
        *,
        service: str | None = None,
        routing: RoutingPolicy | None = None,
        tenant_resolver: TenantResolver | None = None,
        schema: str | None = None,
        limits: PayloadLimits = DEFAULT_LIMITS,
        encoders: Encoders = DEFAULT_ENCODERS,
        allow_unsafe_role: bool = False,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        env = os.environ if environ is None else environ
        self.settings = CaptureSettings.from_env(
            env,
            service=service,
            bus=bus if bus is None or isinstance(bus, str) else bus.capabilities.rules.name,
            routing=routing,
            tenancy=Tenancy.from_env(env, resolver=tenant_resolver),
            schema=schema,
            limits=limits,
            encoders=encoders,
        )
        self.engine = _engine(database)
        self._bus = bus or env.get("PILLARBOX_BUS_URL") or None
        self._environ = env
        self.registry = EventRegistry()
        self.session_factory = async_sessionmaker(self.engine, expire_on_commit=False)
        collect_events(self.session_factory, settings=self.settings)
        self._repositories: dict[type[Any], RepositoryFactory] = {}
        self._allow_unsafe_role = allow_unsafe_role

    @classmethod
    def from_env(
        cls, service: str | None = None, *, environ: Mapping[str, str] | None = None, **options: Any
    ) -> "Pillarbox":
        """Read `PILLARBOX_DATABASE_URL`, `PILLARBOX_BUS_URL` and `PILLARBOX_SERVICE`."""
        env = os.environ if environ is None else environ
        database = env.get("PILLARBOX_DATABASE_URL")
        if not database:
            raise InvalidConfig(
                "PILLARBOX_DATABASE_URL",
                "is not set",
                "set it to postgresql://user@host/database, or run `pillarbox dev` and paste the "
                "lines that it prints",
            )
        bus = env.get("PILLARBOX_BUS_URL") or None
        return cls(database, bus, service=service, environ=env, **options)

    async def session(self) -> AsyncIterator[AsyncSession]:
        """Yield a session that records events: a dependency for FastAPI's `Depends`."""
        async with self.session_factory() as session:
            yield session

    async def uow(self) -> AsyncIterator[SQLAlchemyUnitOfWork]:
        """Yield an entered unit of work: a dependency for FastAPI's `Depends`."""
        async with self.unit_of_work() as uow:
            yield uow

    def unit_of_work(self) -> SQLAlchemyUnitOfWork:
        """Make a unit of work, to be entered with `async with`."""
        return SQLAlchemyUnitOfWork(self.session_factory, repositories=self._repositories)

    def repository(self, kind: type[Any], factory: RepositoryFactory) -> None:
        """Say which repository saves and finds a class of aggregates that is not mapped."""
        if self._repositories.setdefault(kind, factory) is not factory:
            raise InvalidConfig(
                f"repository of {kind.__name__}", "is registered already", "register one only"
            )

    @property
    def bus(self) -> MessageBus:
        """The bus, made from its URL on first use."""
        if self._bus is None:
            raise InvalidConfig(
                "bus",
                "is not set",
                "pass it to Pillarbox, or set PILLARBOX_BUS_URL to kafka://host:9092 or the like",
            )
        if isinstance(self._bus, str):
            self._bus = bus_from_url(self._bus)
        return self._bus

    def projector(
        self,
        tenant_id: str | Sequence[str] | None = None,
        config: OutboxProjectorConfig | None = None,
        **options: Any,
    ) -> OutboxProjector:
        """Make a projector for this service's database and bus."""
        return OutboxProjector(
            self.session_factory,
            self.bus,
            tenant_id,
            config or OutboxProjectorConfig.from_env(self._environ),
            service=self.settings.service,
            schema=self.settings.schema,
            **options,
        )

    def lifespan(self, *, projector: bool = False) -> Lifespan:
        """Return a lifespan for an ASGI framework: checks at the start, wake-ups while it runs.

        With `projector` this process also moves the events to the bus.
        """

        @asynccontextmanager
        async def lifespan(app: Any) -> AsyncIterator[None]:
            del app
            async with self.running(projector=projector):
                yield

        return lifespan

    @asynccontextmanager
    async def running(self, *, projector: bool = False) -> AsyncIterator[None]:
        """Check the database, tell other processes of commits, and close the engine at the end."""
        try:
            await self.check()
            async with self._told_of_commits():
                if not projector:
                    yield
                    return
                async with self._projected():
                    yield
        finally:
            await self.engine.dispose()

    @asynccontextmanager
    async def _told_of_commits(self) -> AsyncIterator[None]:
        notifier = asyncio.create_task(Notifier(self.engine).run(), name="pillarbox-notifier")
        try:
            yield
        finally:
            notifier.cancel()
            with suppress(asyncio.CancelledError):
                await notifier

    @asynccontextmanager
    async def _projected(self) -> AsyncIterator[None]:
        """Run a projector beside the application; when it fails, the application ends too."""
        projector = self.projector()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(projector.run_forever(), name="pillarbox-projector")
                try:
                    yield
                finally:
                    projector.stop()
        finally:
            await self.bus.close()

    async def check(self) -> None:
        """Refuse a database that cannot serve this process; log what is merely weak."""
        try:
            async with self.engine.connect() as connection:
                warnings = await connection.run_sync(
                    start_up_check,
                    tenancy=self.settings.tenancy.required,
                    allow_unsafe_role=self._allow_unsafe_role,
                    schema=self.settings.schema,
                )
        except (OperationalError, OSError) as error:
            raise DatabaseUnreachable(shown(self.engine.url)) from error
        for warning in warnings:
            log.warning("start_up_check: %s", warning)

    def __repr__(self) -> str:
        return f"<Pillarbox {self.settings.service} on {shown(self.engine.url)}>"


def _engine(database: str | AsyncEngine) -> AsyncEngine:
    return database if isinstance(database, AsyncEngine) else make_engine(database)
