"""The whole projector through a session factory: SQLite, and one outer transaction."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.pool import StaticPool

from pillarbox import OutboxRecord, SqlAlchemyOutbox, collect_events
from pillarbox.bus.memory import MemoryMessageBus
from pillarbox.bus.outcome import Refused, Unavailable
from pillarbox.database import make_engine
from pillarbox.errors import InvalidConfig, SchemaMissing
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.outbox.settings import CaptureSettings
from pillarbox.projector.config import OutboxProjectorConfig
from pillarbox.projector.projector import OutboxProjector
from pillarbox.schema import apply
from pillarbox.schema.tables import outbox_claim, outbox_lease, outbox_member
from pillarbox.tenancy import Tenancy
from tests.support.database import Database, on
from tests.support.orders import Noted
from tests.support.waiting import until

Sessions = async_sessionmaker[AsyncSession]
TOO_LARGE = Refused("too-large", "in this test")


@asynccontextmanager
async def sqlite(folder: Path) -> AsyncIterator[Sessions]:
    """A file as `pillarbox schema apply` leaves it, with an engine of ours."""
    engine = make_engine(f"sqlite:///{folder / 'outbox.db'}")
    try:
        async with engine.begin() as connection:
            await connection.run_sync(apply)
        yield async_sessionmaker(engine, expire_on_commit=False)
    finally:
        await engine.dispose()


@asynccontextmanager
async def one_transaction(database: Database) -> AsyncIterator[Sessions]:
    """Sessions on one connection, whose commits end with the transaction around them."""
    async with database.engine.connect() as connection:
        outer = await connection.begin()
        yield async_sessionmaker(
            connection, join_transaction_mode="create_savepoint", expire_on_commit=False
        )
        await outer.rollback()


async def note(
    sessions: Sessions, *words: str, key: str = "note-1", tenant: str = "default"
) -> None:
    async with sessions.begin() as session:
        outbox = SqlAlchemyOutbox(session, tenant_id=tenant)
        for word in words:
            await outbox.add(Noted(word), key=key)


async def statuses(sessions: Sessions) -> list[str]:
    async with sessions() as session:
        return list(await session.scalars(select(OutboxRecord.status).order_by(OutboxRecord.seq)))


def words(bus: MemoryMessageBus) -> list[str]:
    return [word(message) for message in bus.messages]


def word(message: MessageEnvelope) -> str:
    body = message.body()
    assert body is not None
    return body.decode().split('"')[3]


def says(*wanted: str) -> "Says":
    return Says(frozenset(wanted))


class Says:
    """Choose messages by their words."""

    def __init__(self, wanted: frozenset[str]) -> None:
        self.wanted = wanted

    def __call__(self, message: MessageEnvelope) -> bool:
        return word(message) in self.wanted


async def test_on_sqlite_every_event_reaches_the_bus_in_order(tmp_path: Path) -> None:
    bus = MemoryMessageBus()
    async with sqlite(tmp_path) as sessions:
        await note(sessions, *(f"a{n}" for n in range(30)))
        await note(sessions, *(f"b{n}" for n in range(30)), key="note-2", tenant="acme")

        sent = await OutboxProjector(sessions, bus).drain()

        assert sent == 60
        assert [said for said in words(bus) if said[0] == "a"] == [f"a{n}" for n in range(30)]
        assert [said for said in words(bus) if said[0] == "b"] == [f"b{n}" for n in range(30)]
        assert set(await statuses(sessions)) == {"SENT"}


async def test_run_once_sends_one_batch(tmp_path: Path) -> None:
    bus = MemoryMessageBus()
    config = OutboxProjectorConfig(batch_size=3)
    async with sqlite(tmp_path) as sessions:
        await note(sessions, "a", "b", "c", "d", "e")
        projector = OutboxProjector(sessions, bus, config=config)

        first, second, third = [await projector.run_once() for _ in range(3)]

    assert (first, second, third) == (3, 2, 0)
    assert words(bus) == ["a", "b", "c", "d", "e"]


async def test_a_running_projector_on_sqlite_hears_of_commits(tmp_path: Path) -> None:
    bus = MemoryMessageBus()
    config = OutboxProjectorConfig(sleep_idle=3_600, sleep_busy=3_600)
    async with sqlite(tmp_path) as sessions, asyncio.TaskGroup() as group:
        projector = OutboxProjector(sessions, bus, config=config)
        group.create_task(projector.run_forever())
        for said in ("a", "b", "c"):
            await note(sessions, said)
            await until(lambda said=said: published(bus, said), f"{said} is published")  # type: ignore[misc] # a default binds it
        projector.stop()

    assert words(bus) == ["a", "b", "c"]


async def test_a_refused_event_holds_up_its_key_only_and_is_tried_again(tmp_path: Path) -> None:
    bus = MemoryMessageBus()
    bus.fail_with(says("a"), TOO_LARGE, times=2)
    config = OutboxProjectorConfig(retry_delay=0.01, retry_delay_max=0.02)
    async with sqlite(tmp_path) as sessions, asyncio.TaskGroup() as group:
        await note(sessions, "a", "b")
        await note(sessions, "c", key="note-2")
        projector = OutboxProjector(sessions, bus, config=config)
        group.create_task(projector.run_forever())
        await until(lambda: published(bus, "b"), "b follows a")
        projector.stop()

    assert words(bus) == ["c", "a", "b"]


async def test_an_event_that_is_refused_for_good_is_dead(tmp_path: Path) -> None:
    bus = MemoryMessageBus()
    bus.fail_with(says("a"), TOO_LARGE)
    config = OutboxProjectorConfig(max_retry_attempts=1)
    async with sqlite(tmp_path) as sessions:
        await note(sessions, "a", "b")
        await note(sessions, "c", key="note-2")

        await OutboxProjector(sessions, bus, config=config).drain()

        assert await statuses(sessions) == ["DEAD", "NEW", "SENT"]
    assert words(bus) == ["c"]


async def test_a_topic_that_comes_back_is_served_again(tmp_path: Path) -> None:
    bus = MemoryMessageBus()
    gone = Unavailable("missing", "in this test", topic="default.note")
    bus.fail_with(says("a", "b"), gone, times=2)
    async with sqlite(tmp_path) as sessions, asyncio.TaskGroup() as group:
        await note(sessions, "a", "b")
        projector = OutboxProjector(sessions, bus)
        group.create_task(projector.run_forever())
        await until(lambda: published(bus, "b"), "the topic is there again")
        projector.stop()

    assert words(bus) == ["a", "b"]


async def test_a_drain_waits_for_a_topic_whose_events_are_set_aside(tmp_path: Path) -> None:
    """After a second and a half nothing was in hand, and the next claim was empty."""
    bus = MemoryMessageBus()
    gone = Unavailable("missing", "in this test", topic="default.note")
    bus.fail_with(says("a"), gone, times=5)
    async with sqlite(tmp_path) as sessions:
        await note(sessions, "a", "b")

        async with asyncio.timeout(30):
            sent = await OutboxProjector(sessions, bus).drain()

    assert (sent, words(bus)) == (2, ["a", "b"])


async def test_two_projectors_on_one_file_send_everything_once(tmp_path: Path) -> None:
    bus = MemoryMessageBus()
    async with (
        sqlite(tmp_path) as sessions,
        sqlite(tmp_path) as others,
        asyncio.TaskGroup() as group,
    ):
        projectors = [OutboxProjector(factory, bus) for factory in (sessions, others)]
        for projector in projectors:
            group.create_task(projector.run_forever())
        for n in range(20):
            await note(sessions, f"a{n}", key=f"note-{n}")
        await until(lambda: published(bus, *(f"a{n}" for n in range(20))), "all are published")
        for projector in projectors:
            projector.stop()

    assert len(words(bus)) == 20


async def test_an_engine_that_knows_nothing_of_us_is_served(tmp_path: Path) -> None:
    bus = MemoryMessageBus()
    async with sqlite(tmp_path) as sessions:
        await note(sessions, "a", "b")
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'outbox.db'}")

    sent = await OutboxProjector(async_sessionmaker(engine), bus).drain()

    assert (sent, words(bus)) == (2, ["a", "b"])
    await engine.dispose()


async def test_a_database_in_memory_survives_a_run() -> None:
    bus = MemoryMessageBus()
    engine = make_engine("sqlite:///:memory:")
    engine.sync_engine.pool = StaticPool(engine.sync_engine.pool._creator)
    async with engine.begin() as connection:
        await connection.run_sync(apply)
    sessions = async_sessionmaker(engine, expire_on_commit=False)
    await note(sessions, "a")

    await OutboxProjector(sessions, bus).drain()

    assert await statuses(sessions) == ["SENT"]
    await engine.dispose()


@on("postgres18+asyncpg", "postgres18+psycopg", "sqlite+aiosqlite")
async def test_a_test_in_one_transaction_runs_the_projector_and_leaves_nothing(
    database: Database,
) -> None:
    bus, before = MemoryMessageBus(), await projectors_rows(database)
    async with one_transaction(database) as sessions:
        await note(sessions, "a", "b")
        projector = OutboxProjector(sessions, bus)
        sent = await projector.run_once()
        await note(sessions, "c")
        drained = await projector.drain()
        inside = await statuses(sessions)

    assert (sent, drained, words(bus)) == (2, 1, ["a", "b", "c"])
    assert inside == ["SENT", "SENT", "SENT"]
    assert await database.count() == 0
    assert await projectors_rows(database) == before


@on("postgres18+asyncpg", "postgres18+psycopg", "sqlite+aiosqlite")
async def test_one_transaction_needs_no_second_connection(database: Database) -> None:
    bus = MemoryMessageBus()
    async with database.other_engine(pool_size=1, max_overflow=0, pool_timeout=1) as engine:
        only = Database(database.name, database.url, engine, async_sessionmaker(engine))
        async with one_transaction(only) as sessions:
            await note(sessions, "a")
            await OutboxProjector(sessions, bus).drain()

    assert words(bus) == ["a"]


@on("postgres18+asyncpg", "postgres18+psycopg", "sqlite+aiosqlite")
async def test_a_run_that_is_cancelled_leaves_the_transaction_as_it_is(database: Database) -> None:
    bus = MemoryMessageBus()
    async with one_transaction(database) as sessions:
        await note(sessions, "a")
        projector = OutboxProjector(sessions, bus)
        for turns in range(0, 100, 7):
            running = asyncio.ensure_future(projector.run_forever())
            for _ in range(turns):
                await asyncio.sleep(0)
            running.cancel()
            await asyncio.wait({running})
        await projector.drain()
        inside = await statuses(sessions)

    assert inside == ["SENT"]


@on("postgres18+asyncpg", "postgres18+psycopg")
async def test_a_projector_of_a_test_retries_and_dies_inside_the_transaction(
    database: Database,
) -> None:
    bus = MemoryMessageBus()
    bus.fail_with(says("a"), TOO_LARGE)
    config = OutboxProjectorConfig(max_retry_attempts=1)
    async with one_transaction(database) as sessions:
        await note(sessions, "a", "b")
        await OutboxProjector(sessions, bus, config=config).drain()
        inside = await statuses(sessions)

    assert inside == ["DEAD", "NEW"]
    assert await database.count() == 0


@on("postgres18+asyncpg", "postgres18+psycopg")
async def test_a_projector_goes_through_the_session_on_request(database: Database) -> None:
    bus = MemoryMessageBus()
    await note(database.sessions, "a", "b")

    sent = await OutboxProjector(database.sessions, bus, through_session=True).drain()

    assert (sent, words(bus)) == (2, ["a", "b"])
    assert await database.scalar("SELECT count(*) FROM outbox_member") == 0


async def test_a_session_is_needed_to_go_through_it() -> None:
    with pytest.raises(InvalidConfig, match="session_factory"):
        OutboxProjector(message_bus=MemoryMessageBus(), through_session=True)


async def test_a_projector_is_outside_the_wall_of_its_sessions(tmp_path: Path) -> None:
    bus = MemoryMessageBus()
    async with sqlite(tmp_path) as sessions:
        await note(sessions, "a", tenant="acme")
        await note(sessions, "b", tenant="brown")
        walled: Sessions = async_sessionmaker(sessions.kw["bind"])
        collect_events(walled, settings=CaptureSettings(tenancy=Tenancy(required=True)))

        await OutboxProjector(walled, bus).drain()

    assert sorted(words(bus)) == ["a", "b"]


async def test_a_file_without_the_tables_is_refused(tmp_path: Path) -> None:
    engine = make_engine(f"sqlite:///{tmp_path / 'empty.db'}")

    with pytest.raises(SchemaMissing):
        await OutboxProjector(async_sessionmaker(engine), MemoryMessageBus()).run_once()

    await engine.dispose()


async def test_an_event_is_delivered_when_its_time_comes(tmp_path: Path) -> None:
    bus = MemoryMessageBus()
    async with sqlite(tmp_path) as sessions, asyncio.TaskGroup() as group:
        async with sessions.begin() as session:
            much_later = datetime.now(UTC) + timedelta(hours=1)
            outbox = SqlAlchemyOutbox(session)
            await outbox.add(Noted("much later"), key="note-1", deliver_at=much_later)
            soon = datetime.now(UTC) + timedelta(milliseconds=200)
            await outbox.add(Noted("later"), key="note-2", deliver_at=soon)
        await note(sessions, "now")
        projector = OutboxProjector(sessions, bus)
        group.create_task(projector.run_forever())
        await until(lambda: published(bus, "later"), "its time comes")
        await until(lambda: published(bus, "now"), "what need not wait")
        projector.stop()

    assert datetime.now(UTC) >= soon
    assert sorted(words(bus)) == ["later", "now"]


async def test_a_drain_sends_what_became_due_while_no_projector_ran(tmp_path: Path) -> None:
    bus = MemoryMessageBus()
    async with sqlite(tmp_path) as sessions:
        async with sessions.begin() as session:
            later = datetime.now(UTC) + timedelta(hours=1)
            await SqlAlchemyOutbox(session).add(Noted("later"), key="note-1", deliver_at=later)
        early = await OutboxProjector(sessions, bus).drain()
        async with sessions.begin() as session:
            due = update(OutboxRecord).values(deliver_at=later - timedelta(hours=2))
            await session.execute(due)

        sent = await OutboxProjector(sessions, bus).drain()

    assert (early, sent, words(bus)) == (0, 1, ["later"])


async def projectors_rows(database: Database) -> list[object]:
    """Return every row that projectors have written."""
    async with database.engine.connect() as connection:
        return [
            sorted(map(str, await connection.execute(select(table))))
            for table in (outbox_lease, outbox_member, outbox_claim)
        ]


async def published(bus: MemoryMessageBus, *wanted: str) -> bool:
    return set(wanted) <= set(words(bus))
