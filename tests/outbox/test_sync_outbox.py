"""The sync outbox on sync sessions and connections, and what neither class accepts."""

from collections.abc import Iterator
from contextlib import suppress
from uuid import UUID

import pytest
from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from pillarbox import JsonText, NewEvent, SqlAlchemyOutbox, SyncSqlAlchemyOutbox
from pillarbox.database import sync_url
from pillarbox.errors import DuplicateEventId, InvalidConfig, NoActiveUnitOfWork
from tests.support.database import Database, on_sync
from tests.support.orders import Noted, Order

ID = UUID("01890a5d-ac96-774b-bcce-b302099a8057")
Target = Session | Connection
pytestmark = on_sync


class Undo(Exception):
    """Raised inside a savepoint to roll it back."""


@pytest.fixture
def engine(database: Database) -> Iterator[Engine]:
    with database.sync_engine() as engine:
        yield engine


@pytest.fixture(params=[Session, Connection])
def target(request: pytest.FixtureRequest, engine: Engine) -> Iterator[Target]:
    """An open session, and an open connection, in turn."""
    with Session(engine) if request.param is Session else engine.connect() as target:
        yield target


async def test_events_commit_with_the_transaction(database: Database, target: Target) -> None:
    outbox = SyncSqlAlchemyOutbox(target, service="shop")
    first = outbox.add(topic="greetings", payload={"n": 1})
    second, third = outbox.add_many([Noted("two"), NewEvent(topic="greetings", payload={"n": 3})])
    target.commit()

    records = await database.events()
    assert [record.id for record in records] == [first, second, third]
    assert [record.topic for record in records] == ["greetings", "shop.note", "greetings"]


async def test_events_roll_back_with_the_transaction(database: Database, target: Target) -> None:
    outbox = SyncSqlAlchemyOutbox(target)
    outbox.add(topic="greetings", payload={"n": 1})
    target.rollback()
    outbox.add(topic="greetings", payload={"n": 2})
    target.commit()

    assert [record.payload for record in await database.events()] == [{"n": 2}]


async def test_savepoints_are_respected(database: Database, target: Target) -> None:
    outbox = SyncSqlAlchemyOutbox(target)
    outbox.add(topic="greetings", payload={"n": 1})
    with suppress(Undo), target.begin_nested():
        outbox.add(topic="greetings", payload={"n": 2})
        raise Undo
    with target.begin_nested():
        outbox.add(topic="greetings", payload={"n": 3})
    target.commit()

    assert [record.payload["n"] for record in await database.events()] == [1, 3]


async def test_json_text_bytes_and_tombstones(database: Database, target: Target) -> None:
    outbox = SyncSqlAlchemyOutbox(target)
    outbox.add(topic="text", payload=JsonText('{"b":1.0,"a":2}'), key=7)
    outbox.add(topic="binary", payload=b"\x00\xff", content_type="application/avro")
    outbox.add(topic="gone", tombstone=True, key=ID)
    target.commit()

    written, binary, gone = await database.events()
    assert list(written.payload.items()) == [("b", 1.0), ("a", 2)]
    assert binary.payload_bytes == b"\x00\xff"
    assert (gone.payload, gone.payload_bytes, gone.key) == (None, None, str(ID))


async def test_an_id_with_other_content_is_refused(database: Database, target: Target) -> None:
    outbox = SyncSqlAlchemyOutbox(target)
    for _ in range(2):
        outbox.add(topic="greetings", payload={"n": 1}, event_id=ID)
    target.commit()
    outbox.add(topic="greetings", payload={"n": 2}, event_id=ID)
    with pytest.raises(DuplicateEventId):
        outbox.flush()
    target.rollback()

    assert [record.payload for record in await database.events()] == [{"n": 1}]


async def test_a_begin_block_commits_by_itself(database: Database, engine: Engine) -> None:
    with sessionmaker(engine).begin() as session:
        session.add(Order(id="o-1"))
        SyncSqlAlchemyOutbox(session).add(topic="greetings", payload={"by": "session"})
    with engine.begin() as connection:
        SyncSqlAlchemyOutbox(connection).add(topic="greetings", payload={"by": "connection"})

    assert [record.payload["by"] for record in await database.events()] == ["session", "connection"]


async def test_the_async_class_refuses_sync_targets_and_names_the_right_one(
    database: Database, target: Target
) -> None:
    with pytest.raises(InvalidConfig, match=r"is a sync .*; use SyncSqlAlchemyOutbox"):
        SqlAlchemyOutbox(target)  # type: ignore[arg-type] # the mistake under test


async def test_the_sync_class_refuses_async_targets_and_names_the_right_one(
    database: Database,
) -> None:
    async with database.sessions() as session, database.engine.connect() as connection:
        for target in (session, connection):
            with pytest.raises(InvalidConfig, match="use SqlAlchemyOutbox with async ones"):
                SyncSqlAlchemyOutbox(target)  # type: ignore[arg-type] # the mistake under test


async def test_engines_and_strangers_are_refused(database: Database, engine: Engine) -> None:
    for stranger in (engine, database.engine, "session", None):
        with pytest.raises(InvalidConfig, match="session"):
            SqlAlchemyOutbox(stranger)  # type: ignore[arg-type] # the mistake under test
        with pytest.raises(InvalidConfig, match="session"):
            SyncSqlAlchemyOutbox(stranger)  # type: ignore[arg-type] # the mistake under test


async def test_a_connection_that_is_not_open_yet_is_refused(database: Database) -> None:
    with pytest.raises(NoActiveUnitOfWork, match="not open yet"):
        SqlAlchemyOutbox(database.engine.connect())


async def test_a_closed_connection_is_refused(database: Database, engine: Engine) -> None:
    async with database.engine.connect() as open_for_now:
        outbox = SqlAlchemyOutbox(open_for_now)
    with engine.connect() as sync_one:
        sync_outbox = SyncSqlAlchemyOutbox(sync_one)

    with pytest.raises(NoActiveUnitOfWork, match="closed"):
        sync_outbox.add(topic="greetings", payload={})
    with pytest.raises(NoActiveUnitOfWork):
        await outbox.add(topic="greetings", payload={})


async def test_a_connection_in_autocommit_is_refused(engine: Engine, database: Database) -> None:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        outbox = SyncSqlAlchemyOutbox(connection)
        with pytest.raises(InvalidConfig, match="AUTOCOMMIT"):
            outbox.add(topic="greetings", payload={})

    assert await database.count() == 0


async def test_an_engine_in_autocommit_is_refused(database: Database) -> None:
    autocommit = create_engine(sync_url(database.url), isolation_level="AUTOCOMMIT")
    try:
        with autocommit.connect() as connection:
            outbox = SyncSqlAlchemyOutbox(connection)
            with pytest.raises(InvalidConfig, match="AUTOCOMMIT"):
                outbox.add(topic="greetings", payload={})
    finally:
        autocommit.dispose()


@pytest.mark.parametrize("by", ["argument", "option"])
async def test_a_session_in_autocommit_is_refused(database: Database, by: str) -> None:
    engine = autocommit_engine(database, by)
    try:
        async with AsyncSession(engine) as session:
            with pytest.raises(InvalidConfig, match="AUTOCOMMIT"):
                await record_and_commit(session)
    finally:
        await engine.dispose()

    assert await database.count() == 0


def autocommit_engine(database: Database, by: str) -> AsyncEngine:
    if by == "argument":
        return create_async_engine(database.url, isolation_level="AUTOCOMMIT")
    return create_async_engine(database.url).execution_options(isolation_level="AUTOCOMMIT")


async def record_and_commit(session: AsyncSession) -> None:
    await SqlAlchemyOutbox(session).add(topic="greetings", payload={})
    await session.commit()


async def test_another_isolation_level_is_welcome(database: Database, engine: Engine) -> None:
    with engine.connect().execution_options(isolation_level="SERIALIZABLE") as connection:
        SyncSqlAlchemyOutbox(connection).add(topic="greetings", payload={})
        connection.commit()

    assert await database.count() == 1
