"""OutboxProjector: the background worker that moves every event from the outbox to the bus."""

import asyncio
import os
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from importlib.metadata import version
from typing import Any

from psycopg import AsyncConnection
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker

from pillarbox.bus.message_bus import MessageBus
from pillarbox.errors import BusUnreachable, InvalidConfig, ScopeOverlaps
from pillarbox.event.ids import id_maker
from pillarbox.event.rules import check_key
from pillarbox.outbox.wakeup import Wakeup, wakeup_of
from pillarbox.projector.config import OutboxProjectorConfig
from pillarbox.projector.loop import Loop, log
from pillarbox.projector.observer import Observer
from pillarbox.projector.postgres.connecting import connect_by, connect_to, dsn_of
from pillarbox.projector.postgres.line import Connect
from pillarbox.projector.postgres.settings import read_shard_count
from pillarbox.projector.postgres.store import PostgresStore
from pillarbox.projector.scope import scope_of
from pillarbox.projector.session.settings import read_shard_count as shard_count_of
from pillarbox.projector.session.store import SessionStore
from pillarbox.projector.settler import DeadHook
from pillarbox.projector.store import Member, Store, StoreUnavailable
from pillarbox.projector.work import Work
from pillarbox.retry import RetryPolicy


class OutboxProjector:
    """Move every committed event to the bus, in order per key, until stopped.

        projector = OutboxProjector(session_factory=session_factory, message_bus=bus)
        asyncio.create_task(projector.run_forever())

    Any number of projectors share the work. `tenant_id` serves one tenant or several, `bucket="0/8"`
    an eighth of all tenants, neither serves all. The connections are the projector's own: by the
    address of the session factory's engine, by `dsn`, or by `connect`, a function that opens a
    psycopg connection. On SQLite, with a session factory that is bound to a connection, or with
    `through_session=True` it has none and works through the session factory alone.
    `dead_hook` is called at least once for an event that becomes DEAD, for several side by side; it
    has ten seconds.
    """

    def __init__(
        self,
        session_factory: async_sessionmaker[AsyncSession] | None = None,
        message_bus: MessageBus | None = None,
        tenant_id: str | Sequence[str] | None = None,
        config: OutboxProjectorConfig | None = None,
        *,
        dsn: str | None = None,
        connect: Callable[[], Awaitable[AsyncConnection[Any]]] | None = None,
        through_session: bool = False,
        bucket: str | None = None,
        service: str | None = None,
        schema: str | None = None,
        observer: Observer | None = None,
        dead_hook: DeadHook | None = None,
        chance: random.Random | None = None,
    ) -> None:
        if message_bus is None:
            raise InvalidConfig("message_bus", "is missing", "pass the bus to publish to")
        self.config = OutboxProjectorConfig.from_env() if config is None else config
        self.config.check_against(message_bus.capabilities.publish_timeout)
        self._bus, self._scope = message_bus, scope_of(tenant_id, bucket)
        engine = _engine_of(session_factory)
        through = through_session or (dsn is None and connect is None and _alone(session_factory))
        self._database = (
            session_factory if session_factory and through else _connect(engine, dsn, connect)
        )
        self._wakeup: Wakeup | None = None if engine is None else wakeup_of(engine)
        name = service or os.environ.get("PILLARBOX_SERVICE") or "default"
        self._service = check_key("service", name)
        self._schema = schema or os.environ.get("PILLARBOX_SCHEMA") or None
        self._observer, self._dead_hook = observer or Observer(), dead_hook
        self._chance = chance or random.Random()  # noqa: S311 - jitter, no secret
        self._new_id = id_maker()
        self._loop: Loop | None = None
        self._stopped = False

    async def run_forever(self) -> None:
        """Work until `stop` is called; survive outages of database and broker."""
        async with self._joined() as loop:
            await loop.run()

    async def drain(self) -> int:
        """Work until nothing is left that may be sent now; return how many events were.

        A bus that is down, or a topic, is waited for, however long; `stop` ends that. What is paused,
        due later, behind an event that failed, or of a tenant over its rate is left.
        """
        async with self._joined() as loop:
            await loop.run(drain=True)
            return loop.settled_events

    async def run_once(self) -> int:
        """Claim one batch, publish and settle it; return how many events were sent."""
        async with self._joined() as loop:
            await loop.run(claims=1)
            return loop.settled_events

    def stop(self) -> None:
        """Claim no more, settle what is in flight, give the leases back; then the run returns.

        A second call does not wait for what is in flight: it will be sent again.
        """
        self._stopped = True
        if self._loop is not None:
            self._loop.stop()

    @property
    def turned_ago(self) -> timedelta | None:
        """How long ago the loop last turned; None while it does not run."""
        return None if self._loop is None else self._loop.turned_ago

    @asynccontextmanager
    async def _joined(self) -> AsyncIterator[Loop]:
        if self._loop is not None:
            raise InvalidConfig("projector", "is running already", "make another one")
        await self._start_bus()
        member = self._member()
        store, shards = await self._open(member)
        work = Work(
            together=self._bus.capabilities.pipelines_keys,
            policy=RetryPolicy(
                self.config.max_retry_attempts,
                self.config.retry_delay,
                self.config.retry_delay_max,
            ),
            chance=self._chance,
            batch_size=self.config.batch_size,
            bytes_in_hand=self.config.bytes_in_hand,
        )
        self._loop = Loop(
            store=store,
            bus=self._bus,
            config=self.config,
            work=work,
            observer=self._observer,
            new_id=self._new_id,
            shards=shards,
            dead_hook=self._dead_hook,
            wakeup=self._wakeup,
        )
        try:
            await store.join(member)
            if self.config.on_sent == "delete":
                self.config.check_readers(await store.log_readers())
            log.info("projector_joined", extra={"scope": str(self._scope), "shards": shards})
            if self._stopped:
                self._loop.stop()
            yield self._loop
        except ExceptionGroup as failed:
            if (overlap := _overlap_in(failed)) is None:
                raise
            for other in failed.exceptions:
                if other is not overlap:
                    log.error("projector_failed", exc_info=other)
            raise overlap from None
        finally:
            self._loop, self._stopped = None, False
            await _leave(store)

    async def _start_bus(self) -> None:
        """Connect to the bus; one that does not answer is waited for while events wait."""
        try:
            warnings = await self._bus.start()
        except BusUnreachable as error:
            warnings = [str(error)]
        for warning in warnings:
            log.warning("bus_check: %s", warning)

    async def _open(self, member: Member) -> tuple[Store, int]:
        make: Callable[..., Store]
        if isinstance(self._database, async_sessionmaker):
            shards = await shard_count_of(self._database, self._schema)
            make = partial(SessionStore, self._database)
        else:
            shards = await read_shard_count(self._database, self._schema)
            make = partial(PostgresStore, self._database)
        store = make(
            config=self.config,
            scope=self._scope,
            member_id=member.member_id,
            source=self._service,
            schema=self._schema,
            shards=shards,
        )
        return store, shards

    def _member(self) -> Member:
        return Member(
            self._new_id(),
            self._service,
            socket.gethostname()[:255],
            os.getpid(),
            version("pillarbox"),
        )


def _overlap_in(failed: ExceptionGroup[Exception]) -> ScopeOverlaps | None:
    """Return the error that ended the loop's tasks, if it is one that a start could have met, too."""
    return next((one for one in failed.exceptions if isinstance(one, ScopeOverlaps)), None)


async def _leave(store: Store) -> None:
    """Give leases back and disconnect, also when cancelled meanwhile; it has its own limit."""
    leaving = asyncio.ensure_future(_give_back(store))
    try:
        await asyncio.shield(leaving)
    except asyncio.CancelledError:
        await asyncio.wait({leaving})
        raise


async def _give_back(store: Store) -> None:
    """Give leases back and disconnect; if that cannot be done now, they expire."""
    try:
        async with asyncio.timeout(_LEAVING):
            await store.leave()
    except (StoreUnavailable, TimeoutError) as error:
        log.warning("leases_not_given_back", extra={"error": str(error)})
    finally:
        await store.close()


_LEAVING = 5.0


def _engine_of(factory: async_sessionmaker[AsyncSession] | None) -> AsyncEngine | None:
    bind = None if factory is None else factory.kw.get("bind")
    return bind if isinstance(bind, AsyncEngine) else None


def _alone(factory: async_sessionmaker[AsyncSession] | None) -> bool:
    """Tell whether a session factory is the only way to its database."""
    bind = None if factory is None else factory.kw.get("bind")
    if isinstance(bind, AsyncEngine):
        return bind.dialect.name == "sqlite"
    return bind is not None  # one connection


def _connect(
    engine: AsyncEngine | None,
    dsn: str | None,
    connect: Callable[[], Awaitable[AsyncConnection[Any]]] | None,
) -> Connect:
    if connect is not None:
        return connect_by(connect)
    if dsn is not None:
        return connect_to(dsn)
    if engine is None:
        raise InvalidConfig(
            "session_factory", "has no engine to take an address from", "pass dsn= or connect="
        )
    return connect_to(dsn_of(engine))
