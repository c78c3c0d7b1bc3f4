"""An event id stands once in the outbox: repeated with equal content, refused with other."""

from uuid import UUID

import pytest
from sqlalchemy import text

from pillarbox import NewEvent, SqlAlchemyOutbox
from pillarbox.errors import DuplicateEventId
from tests.outbox.test_manual_outbox import Target, target
from tests.support.database import Database, on

__all__ = ["target"]
ID = UUID("01890a5d-ac96-774b-bcce-b302099a8057")
pytestmark = on("postgres18+asyncpg", "postgres16+psycopg", "sqlite+aiosqlite")


async def test_an_id_with_equal_content_is_recorded_once(
    database: Database, target: Target
) -> None:
    for _ in range(2):
        outbox = SqlAlchemyOutbox(target)
        for _ in range(2):
            await outbox.add(topic="greetings", payload={"n": 1}, key="k", event_id=ID)
        await target.commit()

    assert [record.id for record in await database.events()] == [ID]


@pytest.mark.parametrize(
    "other", [{"payload": {"n": 2}}, {"key": "k-2"}, {"topic": "other"}, {"headers": {"h": "1"}}]
)
async def test_an_id_with_other_content_is_refused(
    database: Database, target: Target, other: dict[str, object]
) -> None:
    same: dict[str, object] = {"topic": "greetings", "payload": {"n": 1}, "key": "k-1"}
    await SqlAlchemyOutbox(target).add(**same, event_id=ID)  # type: ignore[arg-type] # options
    await target.commit()

    with pytest.raises(DuplicateEventId, match=str(ID)):
        await add_and_commit(target, {**same, **other})
    await target.rollback()

    [record] = await database.events()
    assert (record.payload, record.key, record.topic) == ({"n": 1}, "k-1", "greetings")


async def add_and_commit(target: Target, options: dict[str, object]) -> None:
    await SqlAlchemyOutbox(target).add(**options, event_id=ID)  # type: ignore[arg-type] # options
    await target.commit()


async def test_one_id_three_times_in_one_transaction_with_other_content_between_is_refused(
    database: Database, target: Target
) -> None:
    events = [
        NewEvent(topic="greetings", payload={"n": number}, key="k", event_id=ID)
        for number in (1, 2, 1)
    ]

    with pytest.raises(DuplicateEventId):
        await add_many_and_commit(target, events)
    await target.rollback()

    assert await database.count() == 0


async def add_many_and_commit(target: Target, events: list[NewEvent]) -> None:
    await SqlAlchemyOutbox(target).add_many(events)
    await target.commit()


async def test_a_transaction_stays_usable_after_a_refused_id_inside_a_savepoint(
    database: Database, target: Target
) -> None:
    outbox = SqlAlchemyOutbox(target)
    await outbox.add(topic="greetings", payload={"n": 1}, event_id=ID)
    await target.commit()

    await outbox.add(topic="greetings", payload={"n": 2})
    with pytest.raises(DuplicateEventId):
        await add_in_savepoint(target, outbox)
    await outbox.add(topic="greetings", payload={"n": 4})
    await target.commit()

    assert [record.payload["n"] for record in await database.events()] == [1, 2, 4]


async def add_in_savepoint(target: Target, outbox: SqlAlchemyOutbox) -> None:
    async with target.begin_nested():
        await outbox.add(topic="greetings", payload={"n": 3}, event_id=ID)
        await outbox.flush()


async def test_after_a_commit_that_was_refused_no_transaction_stays_open(
    database: Database, target: Target
) -> None:
    await SqlAlchemyOutbox(target).add(topic="greetings", payload={"n": 1}, event_id=ID)
    await target.commit()

    await SqlAlchemyOutbox(target).add(topic="greetings", payload={"n": 2})
    with pytest.raises(DuplicateEventId):
        await add_and_commit(target, {"topic": "greetings", "payload": {"n": 3}})
    await target.close()
    async with database.engine.connect() as next_user:
        await next_user.execute(text("SELECT 1"))
        await next_user.commit()

    assert [record.payload["n"] for record in await database.events()] == [1]
