"""The sync inbox on sync sessions and connections, and what neither class accepts."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from pillarbox import InboxMessage, SqlAlchemyInbox, SyncSqlAlchemyInbox
from pillarbox.database import sync_url
from pillarbox.errors import (
    ContentMismatch,
    DuplicateMessage,
    InvalidConfig,
    NoActiveUnitOfWork,
)
from tests.inbox.targets import stored
from tests.support.database import Database, on_sync

Target = Session | Connection
pytestmark = [on_sync, pytest.mark.usefixtures("database")]


@pytest.fixture
def engine(database: Database) -> Iterator[Engine]:
    with database.sync_engine() as engine:
        yield engine


@pytest.fixture(params=[Session, Connection])
def sync_target(request: pytest.FixtureRequest, engine: Engine) -> Iterator[Target]:
    """An open session, and an open connection, in turn."""
    with Session(engine) if request.param is Session else engine.connect() as target:
        yield target


async def test_all_calls_are_those_of_the_async_inbox(
    database: Database, sync_target: Target
) -> None:
    inbox = SyncSqlAlchemyInbox(sync_target, consumer="payments", keep_payload=True)
    assert not inbox.is_processed("m-1")
    marked = inbox.mark_processed("m-1", "OrderCreated", {"n": 1}, "orders", {"x": 1})
    assert inbox.is_processed("m-1", payload={"n": 1})
    assert inbox.claim("m-1", event_type="OrderCreated") is False
    assert inbox.claim("m-2", event_type="OrderCreated", payload={"n": 2}) is True
    batch = [InboxMessage(message_id=one, event_type="T") for one in ("m-3", "m-1")]
    assert inbox.claim_many(batch) == {"m-3"}
    with pytest.raises(DuplicateMessage):
        inbox.mark_processed("m-2", "OrderCreated", {"n": 2})
    with pytest.raises(ContentMismatch):
        inbox.claim("m-2", event_type="OrderCreated", payload={"n": 3})
    sync_target.commit()

    assert await stored(database) == ["m-1", "m-2", "m-3"]
    found = inbox.get_record("m-1")
    assert found is not None
    assert (found.payload, found.extra_data) == (marked.payload, marked.extra_data)
    assert (found.payload, found.extra_data) == ({"n": 1}, {"x": 1})


async def test_a_claim_rolls_back_with_the_transaction(
    database: Database, sync_target: Target
) -> None:
    SyncSqlAlchemyInbox(sync_target).claim("m-1", event_type="T")
    sync_target.rollback()

    assert await stored(database) == []


async def test_the_async_class_refuses_sync_targets_and_names_the_right_one(
    sync_target: Target,
) -> None:
    with pytest.raises(InvalidConfig, match=r"is a sync .*SyncSqlAlchemyInbox"):
        SqlAlchemyInbox(sync_target)  # type: ignore[arg-type] # the mistake under test


async def test_the_sync_class_refuses_async_targets_and_names_the_right_one(
    database: Database,
) -> None:
    async with database.sessions() as session, database.engine.connect() as connection:
        for target in (session, connection):
            with pytest.raises(InvalidConfig, match="use SqlAlchemyInbox with async ones"):
                SyncSqlAlchemyInbox(target)  # type: ignore[arg-type] # the mistake under test


async def test_engines_and_strangers_are_refused(database: Database, engine: Engine) -> None:
    for stranger in (engine, database.engine, "session", None):
        with pytest.raises(InvalidConfig, match="session"):
            SqlAlchemyInbox(stranger)  # type: ignore[arg-type] # the mistake under test
        with pytest.raises(InvalidConfig, match="session"):
            SyncSqlAlchemyInbox(stranger)  # type: ignore[arg-type] # the mistake under test


async def test_a_closed_connection_is_refused(engine: Engine, database: Database) -> None:
    with engine.connect() as connection:
        inbox = SyncSqlAlchemyInbox(connection)

    with pytest.raises(NoActiveUnitOfWork, match="closed"):
        inbox.claim("m-1", event_type="T")
    with pytest.raises(NoActiveUnitOfWork, match="not open yet"):
        SqlAlchemyInbox(database.engine.connect())


async def test_autocommit_is_refused_because_nothing_holds_record_and_effect_together(
    database: Database,
) -> None:
    sync_engine = create_engine(sync_url(database.url), isolation_level="AUTOCOMMIT")
    engine = create_async_engine(database.url, isolation_level="AUTOCOMMIT")
    try:
        with (
            sync_engine.connect() as connection,
            pytest.raises(InvalidConfig, match="AUTOCOMMIT"),
        ):
            SyncSqlAlchemyInbox(connection).claim("m-1", event_type="T")
        async with AsyncSession(engine) as session:
            with pytest.raises(InvalidConfig, match="AUTOCOMMIT"):
                await SqlAlchemyInbox(session).mark_processed("m-1", "T")
    finally:
        sync_engine.dispose()
        await engine.dispose()

    assert await stored(database) == []


async def test_a_database_that_is_not_served_is_refused() -> None:
    engine = create_engine("sqlite://")
    engine.dialect.name = "mysql"
    with engine.connect() as connection, pytest.raises(InvalidConfig, match="mysql is not"):
        SyncSqlAlchemyInbox(connection).claim("m-1", event_type="T")
    engine.dispose()
