"""Pillarbox: the one object that holds settings and makes the parts."""

import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_sessionmaker

from pillarbox.bus.connect import bus_from_url
from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.subscription import Subscription, SubscriptionRequest, forgotten_by
from pillarbox.consumer.config import ConsumerConfig
from pillarbox.consumer.consumer import Consumer
from pillarbox.consumer.observer import Observer as ConsumerObserver
from pillarbox.consumer.routes import Routes
from pillarbox.database import make_engine, shown
from pillarbox.errors import DatabaseUnreachable, InvalidConfig
from pillarbox.event.encoders import DEFAULT_ENCODERS, DEFAULT_LIMITS, Encoders, PayloadLimits
from pillarbox.event.incoming import Identify, ProvenTenant, ReadingRules
from pillarbox.event.registry import EventRegistry
from pillarbox.extras import import_with_extra
from pillarbox.idempotency.cleanup import Cleanup
from pillarbox.idempotency.observer import Observer as CommandObserver
from pillarbox.idempotency.settings import IdempotencySettings
from pillarbox.idempotency.stores import store_for
from pillarbox.outbox.routing import RoutingPolicy
from pillarbox.outbox.settings import CaptureSettings
from pillarbox.outbox.targets import sync_connection
from pillarbox.projector.config import OutboxProjectorConfig
from pillarbox.projector.projector import OutboxProjector
from pillarbox.readmodel.config import ReadModelConfig
from pillarbox.readmodel.definition import ReadModel
from pillarbox.readmodel.making import ReadModelRunner, read_model_runner
from pillarbox.saga.definition import Saga
from pillarbox.saga.observer import SagaObserver
from pillarbox.saga.registration import Sagas
from pillarbox.schema.start_up import start_up_check
from pillarbox.tenancy import Tenancy, TenantResolver
from pillarbox.uow.hook import collect_events
from pillarbox.uow.joining import joining_session
from pillarbox.uow.repository import RepositoryFactory
from pillarbox.uow.unit_of_work import SQLAlchemyUnitOfWork
from pillarbox.workers import Worker, cleaned_up, run_beside, told_of_commits

log = logging.getLogger(__name__)

SagaClass = TypeVar("SagaClass", bound=type[Saga])
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
        self.environ = env
        self.registry = EventRegistry()
        self.session_factory = async_sessionmaker(self.engine, expire_on_commit=False)
        collect_events(self.session_factory, settings=self.settings)
        self.consumers: dict[str, Consumer] = {}
        self.read_models: dict[str, ReadModelRunner] = {}
        self.sagas = Sagas(self.consumer, self.registry, self.settings)
        self._repositories: dict[type[Any], RepositoryFactory] = {}
        self._cleanups: list[Cleanup] = []
        self.is_lent = False
        """Whether a test has it: then nothing is started beside the application."""
        self.at_work: Sequence[Worker] = ()
        """What runs beside the application now."""
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
        """Yield a session that records events: a dependency for FastAPI's `Depends`.

        In an idempotent route it joins the transaction of the route, as a unit of work does.
        """
        async with joining_session(self.session_factory) as session:
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

    def idempotent_route(
        self,
        *,
        principal: Callable[[Any], object],
        settings: IdempotencySettings | None = None,
        observer: CommandObserver | None = None,
        **options: Any,
    ) -> type[Any]:
        """Make a FastAPI route class whose commands take effect once for each Idempotency-Key.

            router = APIRouter(route_class=box.idempotent_route(principal=lambda r: r.state.user_id))

        `principal` names the caller, after the route's dependencies have run. Options are those of
        `IdempotencySettings`, or pass `settings`.
        """
        policy = replace(settings or IdempotencySettings(), **options)
        schema = self.settings.schema
        store = store_for(
            self.engine.dialect.name, policy, schema=schema, clock=self.settings.clock
        )
        found = import_with_extra("pillarbox.idempotency.fastapi", "idempotent_route", "fastapi")
        tenancy, heard = self.settings.tenancy, observer or CommandObserver()
        parts = found.RouteParts(self._bind, store, tenancy, principal, heard)
        self._cleanups.append(Cleanup(self.engine, store, tenancy.required, heard))
        route: type[Any] = found.idempotent_route(parts)
        return route

    @property
    def has_bus(self) -> bool:
        """Whether a bus was named."""
        return self._bus is not None

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
        config = config or OutboxProjectorConfig.from_env(self.environ)
        config.check_readers([m.model.name for m in self.read_models.values() if m.follows_log])
        return OutboxProjector(
            self.session_factory,
            self.bus,
            tenant_id,
            config,
            service=self.settings.service,
            schema=self.settings.schema,
            **options,
        )

    def consumer(
        self,
        name: str,
        topics: Sequence[str],
        *,
        config: ConsumerConfig | None = None,
        ignore_unknown: bool = False,
        identify: Identify | None = None,
        proven_tenant: ProvenTenant | None = None,
        strict_json: bool = True,
        observer: ConsumerObserver | None = None,
    ) -> Consumer:
        """Make a consumer of topics; it runs with `pillarbox consumer run` or `running`.

        A message of a type without a handler is parked, or passed over with `ignore_unknown`.
        `identify` makes ids for producers that send none, `proven_tenant` says which tenant a
        message's way proves, and `strict_json=False` takes JSON in which a key comes twice.
        """
        rules = ReadingRules(
            tenant_required=self.settings.tenancy.required,
            proven_tenant=proven_tenant,
            strict=strict_json,
            limits=self.settings.limits,
        )
        routes = Routes(
            self.registry, identify=identify, rules=rules, ignore_unknown=ignore_unknown
        )
        made = self._consumer(name, routes, topics, config, observer)
        if self.consumers.setdefault(name, made) is not made:
            raise InvalidConfig(
                f"consumer {name!r}", "is there already", "give each consumer a name of its own"
            )
        return made

    def _consumer(
        self,
        name: str,
        routes: Routes,
        topics: Sequence[str],
        config: ConsumerConfig | None = None,
        observer: ConsumerObserver | None = None,
    ) -> Consumer:
        return Consumer(
            name,
            topics,
            self._subscribe,
            self.session_factory,
            routes=routes,
            config=config or ConsumerConfig.from_env(self.environ),
            observer=observer,
            schema=self.settings.schema,
        )

    def read_model(
        self,
        model: type[ReadModel],
        *,
        topics: Sequence[str] | None = None,
        config: ReadModelConfig | None = None,
        **options: Any,
    ) -> ReadModelRunner:
        """Make a read model that follows the outbox's log, or with `topics` a subscription.

        It runs with `running(read_models=True)`. Options are those of `read_model_runner`.
        """
        made = read_model_runner(
            model(),
            self.session_factory,
            self.settings,
            topics=topics,
            make=self._consumer,
            forgotten=lambda named: forgotten_by(self.bus, named),
            config=config or ReadModelConfig.from_env(self.environ),
            registry=self.registry,
            **options,
        )
        if self.read_models.setdefault(model.name, made) is not made:
            raise InvalidConfig(
                f"read model {model.name!r}", "is there already", "give each a name of its own"
            )
        return made

    def saga(
        self,
        definition: SagaClass,
        *,
        config: ConsumerConfig | None = None,
        observer: SagaObserver | None = None,
    ) -> SagaClass:
        """Register a saga; usable as a decorator. It runs as the consumer `saga-<name>`.

        Register further versions beside it for as long as sagas of the older ones are open.
        """
        self.sagas.add(definition, config, observer)
        return definition

    def _subscribe(self, request: SubscriptionRequest) -> Subscription:
        subscribe = getattr(self.bus, "subscribe", None)
        if subscribe is None:
            raise InvalidConfig(
                "bus", "can only publish", "use a bus that has `subscribe`, see SubscribingBus"
            )
        made: Subscription = subscribe(request)
        return made

    def lifespan(
        self, *, projector: bool = False, consumers: bool = False, read_models: bool = False
    ) -> Lifespan:
        """Return a lifespan for an ASGI framework: checks at the start, wake-ups while it runs.

        With `projector` this process also moves the events to the bus; with `consumers` it runs
        the consumers, with `read_models` the read models.
        """

        @asynccontextmanager
        async def lifespan(app: Any) -> AsyncIterator[None]:
            del app
            async with self.running(
                projector=projector, consumers=consumers, read_models=read_models
            ):
                yield

        return lifespan

    @asynccontextmanager
    async def running(
        self, *, projector: bool = False, consumers: bool = False, read_models: bool = False
    ) -> AsyncIterator[None]:
        """Check the database, tell other processes of commits; close engine and bus at the end."""
        if self.is_lent:
            yield
            return
        try:
            await self.check()
            workers: list[Worker] = [self.projector()] if projector else []
            workers += self.consumers.values() if consumers else ()
            workers += self.read_models.values() if read_models else ()
            self.at_work = workers
            async with (
                told_of_commits(self.engine),
                cleaned_up(self._cleanups),
                run_beside(workers),
            ):
                yield
        finally:
            self.at_work = ()
            await self._close_bus()
            await self.engine.dispose()

    def _bind(self) -> Engine | Connection:
        """Return where the sessions of this moment work: on a test's connection, while it is lent."""
        bind = self.session_factory.kw["bind"]
        if isinstance(bind, AsyncConnection):
            return sync_connection(bind)
        return self.engine.sync_engine

    async def _close_bus(self) -> None:
        """Let go of a bus that was made; one that nobody asked for is not made for it."""
        if self._bus is not None and not isinstance(self._bus, str):
            await self._bus.close()

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
