"""The outbox by hand, on any session or connection of the caller's own."""

from collections.abc import AsyncIterator
from uuid import UUID

import pytest
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from pillarbox import JsonText, NewEvent, OutboxRecord, SqlAlchemyOutbox
from tests.support.database import Database, on
from tests.support.orders import Noted, Order

ID = UUID("01890a5d-ac96-774b-bcce-b302099a8057")
Target = AsyncSession | AsyncConnection
pytestmark = on("postgres18+asyncpg", "postgres16+psycopg", "sqlite+aiosqlite")


@pytest.fixture(params=["session", "connection"])
async def target(request: pytest.FixtureRequest, database: Database) -> AsyncIterator[Target]:
    """An open session, and an open connection, in turn."""
    if request.param == "session":
        async with database.sessions() as session:
            yield session
    else:
        async with database.engine.connect() as connection:
            yield connection


async def test_the_sample_of_the_requirements_runs_as_written(database: Database) -> None:
    async with database.sessions() as session:
        outbox = SqlAlchemyOutbox(session)
        await outbox.add(topic="order.created", payload={"order_id": "123", "total": 99.99})
        await session.commit()

    [record] = await database.events()
    assert (record.topic, record.event_type) == ("order.created", "order.created")
    assert record.payload == {"order_id": "123", "total": 99.99}
    assert (record.tenant_id, record.status, record.retry_count) == ("default", "NEW", 0)


async def test_an_order_and_its_event_in_one_begin_block_with_the_id_flushed_first(
    database: Database,
) -> None:
    async with database.sessions() as session, session.begin():
        order = Order(id="o-7", total=5)
        session.add(order)
        await session.flush()
        await SqlAlchemyOutbox(session, service="shop").add(
            topic="order.created", payload={"order_id": order.id, "version": order.version}
        )

    [record] = await database.events()
    assert record.payload == {"order_id": "o-7", "version": 1}
    assert await database.order_ids() == ["o-7"]


async def test_an_event_is_there_after_the_commit_and_not_before(
    database: Database, target: Target
) -> None:
    event_id = await SqlAlchemyOutbox(target).add(topic="greetings", payload={"n": 1})
    if database.is_postgres:
        assert await database.count() == 0
    await target.commit()

    assert [record.id for record in await database.events()] == [event_id]


async def test_an_event_is_not_there_after_a_rollback(database: Database, target: Target) -> None:
    await SqlAlchemyOutbox(target).add(topic="greetings", payload={"n": 1})
    await target.rollback()
    await target.commit()

    assert await database.count() == 0


async def test_an_event_is_not_there_after_a_rollback_and_new_work(
    database: Database, target: Target
) -> None:
    await SqlAlchemyOutbox(target).add(topic="greetings", payload={"n": 1})
    await target.rollback()
    await SqlAlchemyOutbox(target).add(topic="greetings", payload={"n": 2})
    await target.commit()

    assert [record.payload for record in await database.events()] == [{"n": 2}]


async def test_an_event_of_a_closed_session_is_not_recorded_by_its_next_use(
    database: Database,
) -> None:
    async with database.sessions() as session:
        await SqlAlchemyOutbox(session).add(topic="greetings", payload={"n": 1})
        await session.close()
        session.add(Order(id="o-1"))
        await session.commit()

    assert await database.count() == 0


async def test_a_connection_that_commits_twice_records_each_event_once(
    database: Database, target: Target
) -> None:
    outbox = SqlAlchemyOutbox(target)
    for number in (1, 2):
        await outbox.add(topic="greetings", payload={"n": number})
        await target.commit()
    await target.commit()

    assert [record.payload for record in await database.events()] == [{"n": 1}, {"n": 2}]


async def test_an_event_object_with_a_key(database: Database, target: Target) -> None:
    await SqlAlchemyOutbox(target, service="shop").add(Noted("hello"), key="k-1")
    await target.commit()

    [record] = await database.events()
    assert (record.topic, record.event_type, record.key) == ("shop.note", "Noted", "k-1")
    assert (record.aggregate_type, record.aggregate_id) == ("note", None)
    assert record.payload == {"text": "hello"}


async def test_without_a_key_an_event_has_its_own_id_as_key(
    database: Database, target: Target
) -> None:
    event_id = await SqlAlchemyOutbox(target).add(topic="greetings", payload={})
    await target.commit()

    [record] = await database.events()
    assert record.key == str(event_id)


@pytest.mark.parametrize(("key", "stored"), [(42, "42"), (ID, str(ID)), ("a b", "a b")])
async def test_keys_are_stored_as_their_text(
    database: Database, target: Target, key: str | int | UUID, stored: str
) -> None:
    await SqlAlchemyOutbox(target).add(topic="greetings", payload={}, key=key)
    await SqlAlchemyOutbox(target).add(topic="greetings", payload={}, aggregate_id=key)
    await target.commit()

    records = await database.events()
    assert [(record.key, record.aggregate_id) for record in records] == [
        (stored, None),
        (stored, stored),
    ]


async def test_many_events_keep_their_order(database: Database, target: Target) -> None:
    events = [
        NewEvent(topic="greetings", payload={"n": number}, key=f"k-{number % 3}")
        for number in range(200)
    ]

    ids = await SqlAlchemyOutbox(target).add_many([*events, Noted("last")])
    await target.commit()

    records = await database.events()
    assert [record.id for record in records] == ids
    assert [record.payload.get("n") for record in records[:-1]] == list(range(200))


async def test_one_refused_event_of_many_leaves_nothing_behind(
    database: Database, target: Target
) -> None:
    outbox = SqlAlchemyOutbox(target)
    with pytest.raises(ValueError, match="topic"):
        await outbox.add_many(
            [NewEvent(topic="good", payload={}), NewEvent(topic="not good", payload={})]
        )
    await outbox.add(topic="after", payload={})
    await target.commit()

    assert await database.event_types() == ["after"]


async def test_bytes_are_kept(database: Database, target: Target) -> None:
    content = bytes(range(256))

    await SqlAlchemyOutbox(target).add(
        topic="binary", payload=content, content_type="application/avro"
    )
    await target.commit()

    [record] = await database.events()
    assert (record.payload_bytes, record.payload) == (content, None)
    assert record.content_type == "application/avro"


async def test_json_text_is_kept_byte_for_byte(database: Database, target: Target) -> None:
    written = '{ "b":1.10,  "a" : [1e2,"\\u00e9é\\/"],\n"c":null }'

    await SqlAlchemyOutbox(target).add(topic="text", payload=JsonText(written))
    await target.commit()

    assert await database.scalar("SELECT CAST(payload AS text) FROM outbox") == written


async def test_a_tombstone_has_neither_payload(database: Database, target: Target) -> None:
    await SqlAlchemyOutbox(target).add(topic="gone", key="k-1", tombstone=True)
    await target.commit()

    [record] = await database.events()
    assert (record.payload, record.payload_bytes, record.key) == (None, None, "k-1")
    assert await database.scalar("SELECT count(*) FROM outbox WHERE payload IS NULL") == 1


async def test_a_flush_shows_the_rows_to_queries_of_the_same_transaction(
    database: Database, target: Target
) -> None:
    outbox = SqlAlchemyOutbox(target)
    await outbox.add(topic="greetings", payload={"n": 1})
    await outbox.flush()
    inside = (await target.execute(select(OutboxRecord.topic))).scalars().all()
    await target.rollback()

    assert inside == ["greetings"]
    assert await database.count() == 0
