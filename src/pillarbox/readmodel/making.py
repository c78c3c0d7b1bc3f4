"""Make the runner and the rebuild of a read model, whatever it follows."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sqlalchemy import Select
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker

from pillarbox.consumer.consumer import Consumer
from pillarbox.consumer.routes import Routes
from pillarbox.consumer.transactions import SessionFactory
from pillarbox.database import make_engine
from pillarbox.errors import InvalidConfig
from pillarbox.event.incoming import ReadingRules
from pillarbox.event.registry import EventRegistry
from pillarbox.outbox.settings import CaptureSettings
from pillarbox.readmodel.cache import RowCache
from pillarbox.readmodel.config import ReadModelConfig
from pillarbox.readmodel.definition import ReadModel
from pillarbox.readmodel.observer import Observer
from pillarbox.readmodel.parts import Parts
from pillarbox.readmodel.progress import Reporter, unheard
from pillarbox.readmodel.rebuild import LogRebuild
from pillarbox.readmodel.runner import LogRunner
from pillarbox.readmodel.subscribed_rebuild import SubscribedRebuild
from pillarbox.readmodel.subscription import SubscribedRunner

MakeConsumer = Callable[[str, Routes, Sequence[str]], Consumer]
Forgotten = Callable[[Sequence[str]], Awaitable[Sequence[str]]]


class Runner(Protocol):
    """What runs a read model, whatever it follows."""

    async def run_forever(self) -> None:
        """Keep the model up to date until `stop`."""
        ...

    async def drain(self) -> None:
        """Apply what there is and end."""
        ...

    def stop(self) -> None:
        """Finish what is in hand and end."""
        ...


@dataclass(frozen=True, slots=True)
class Following:
    """A subscription that a model follows."""

    topics: tuple[str, ...]
    make: MakeConsumer
    forgotten: Forgotten

    def consumer(self, name: str, routes: Routes) -> Consumer:
        """Make a consumer of the model's topics."""
        return self.make(name, routes, self.topics)

    async def gone(self) -> Sequence[str]:
        """Say where the broker's log does not reach the first event."""
        return await self.forgotten(self.topics)


class ReadModelRunner:
    """Keep a read model up to date, in as many processes as you like, and build it again.

    plans = box.read_model(RoutePlans)
    await plans.rebuild(report=print)
    """

    def __init__(self, model: ReadModel, parts: Parts, following: Following | None) -> None:
        self.model, self.parts = model, parts
        self._following = following
        self._runner: Runner = (
            LogRunner(model, parts)
            if following is None
            else SubscribedRunner(model, parts, following.consumer)
        )

    @property
    def follows_log(self) -> bool:
        """Whether its events come straight from the outbox."""
        return self._following is None

    async def run_forever(self) -> None:
        """Keep the model up to date until `stop`."""
        await self._runner.run_forever()

    async def drain(self) -> None:
        """Apply what there is and end: for tests and for jobs."""
        await self._runner.drain()

    def stop(self) -> None:
        """Finish what is in hand and end."""
        self._runner.stop()

    async def rebuild(
        self, *, snapshot: Select[*tuple[Any, ...]] | None = None, report: Reporter = unheard
    ) -> None:
        """Build the model again beside its readers; a rebuild that was killed goes on.

        `snapshot` is a query for the rows to begin with; a rebuild that goes on refuses it.
        """
        following = self._following
        if following is None:
            await LogRebuild(self.model, self.parts, snapshot=snapshot, report=report).run()
            return
        if snapshot is not None:
            raise InvalidConfig(
                "snapshot", "is for models that follow the log", "rebuild from the broker's log"
            )
        await self._from_broker(following, report).run()

    async def abandon(self) -> None:
        """Give up a rebuild that has not ended; the live table is as it was.

        One from a subscription leaves its consumer at the broker, as one that has ended does with the
        consumer before it.
        """
        if self._following is None:
            await LogRebuild(self.model, self.parts).abandon()
        else:
            await self._from_broker(self._following).abandon()

    def _from_broker(self, following: Following, report: Reporter = unheard) -> SubscribedRebuild:
        return SubscribedRebuild(
            self.model, self.parts, following.consumer, following.gone, report=report
        )

    def __repr__(self) -> str:
        return f"<ReadModelRunner {self.model.name}>"


def read_model_runner(
    model: ReadModel,
    session_factory: SessionFactory,
    settings: CaptureSettings,
    *,
    topics: Sequence[str] | None,
    make: MakeConsumer,
    forgotten: Forgotten,
    config: ReadModelConfig,
    registry: EventRegistry,
    database: str | AsyncEngine | None = None,
    cache: RowCache | None = None,
    observer: Observer | None = None,
) -> ReadModelRunner:
    """Make a runner of a model with the settings of an application.

    `database` is the address by which the log is read, where the application's own role sees one tenant
    at a time.
    """
    model.methods()  # refuse what cannot work at once
    parts = Parts(
        session_factory if database is None else _sessions(database),
        config,
        registry,
        ReadingRules(tenant_required=settings.tenancy.required, limits=settings.limits),
        observer or Observer(),
        service=settings.service,
        schema=settings.schema,
        clock=settings.clock,
        cache=cache,
    )
    if topics is None:
        return ReadModelRunner(model, parts, None)
    return ReadModelRunner(model, parts, Following(tuple(topics), make, forgotten))


def _sessions(database: str | AsyncEngine) -> SessionFactory:
    engine = database if isinstance(database, AsyncEngine) else make_engine(database)
    return async_sessionmaker(engine, expire_on_commit=False)
