"""An id that was used twice: each content takes effect once or is parked once, whatever comes again."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, event, insert, text

from pillarbox.consumer import parked as parked_module
from pillarbox.consumer.context import Context
from pillarbox.consumer.parked import ParkedMessages
from pillarbox.consumer.signals import Retry
from pillarbox.event.ids import id_maker
from pillarbox.event.incoming import Incoming
from pillarbox.schema.tables import inbox_parked
from tests.consumer.hands import item
from tests.consumer.rig import CONSUMER, QUICK, TOPIC, Shop, record
from tests.support.database import on

pytestmark = on("postgres18+psycopg", "postgres18+asyncpg", "sqlite+aiosqlite")

ONE_LANE = replace(QUICK, lanes=1)


async def wait_for_an_hour(event: dict[str, Any], ctx: Context) -> None:
    raise Retry(after=timedelta(hours=1))


async def test_what_took_effect_is_a_duplicate_though_another_is_parked_under_its_id(
    shop: Shop,
) -> None:
    """Only the parked message was compared, so the good one was parked beside it with an alarm."""
    for n in (1, 2, 1):
        shop.send("m1", n=n)
        await shop.loop().drain()

    assert await shop.effects() == ["m1"]
    assert shop.seen.outcomes == {"new": 1, "parked": 1, "duplicate": 1}
    assert await shop.count("inbox_parked", "reason = 'content-mismatch'") == 1


async def test_what_came_back_and_took_effect_is_a_duplicate_beside_the_other_of_its_id(
    shop: Shop,
) -> None:
    shop.send("m1", n=1)
    await shop.loop(wait_for_an_hour).drain()
    shop.send("m1", n=2)
    await shop.loop().drain()
    async with shop.database.engine.begin() as connection:
        await connection.execute(
            text("UPDATE inbox_parked SET due_at = first_at WHERE due_at IS NOT NULL")
        )
    await shop.loop().drain()
    assert await shop.effects() == ["m1"]

    shop.send("m1", n=1)
    await shop.loop().drain()

    assert await shop.count("inbox_parked") == 1
    assert shop.seen.outcomes["duplicate"] == 1
    assert await shop.effects() == ["m1"]


async def test_a_duplicate_in_one_batch_with_another_content_is_not_parked_along(
    shop: Shop,
) -> None:
    shop.send("m1", n=1)
    await shop.loop().drain()

    for n in (2, 1):
        shop.send("m1", n=n)
    await shop.loop(config=ONE_LANE).drain()

    assert shop.seen.outcomes == {"new": 1, "parked": 1, "duplicate": 1}
    bodies = "SELECT count(*) FROM inbox_parked WHERE body = :body"
    assert await shop.database.scalar(bodies, {"body": b'{"n":2}'}) == 1
    assert await shop.count("inbox_parked") == 1


async def test_what_took_effect_is_not_moved_to_the_table_as_another_of_its_id(
    shop: Shop,
) -> None:
    for n in (1, 2):
        shop.send("m1", n=n)
        await shop.loop().drain()

    shop.send("m0", n=0)
    shop.send("m1", n=1)
    await shop.loop(wait_for_an_hour, replace(ONE_LANE, batch_size=1)).drain()

    assert await shop.count("inbox_parked", "message_id = 'm0' AND state = 'waiting'") == 1
    assert await shop.count("inbox_parked", "message_id = 'm1'") == 1


async def test_a_message_whose_id_is_not_parked_costs_no_question_about_its_content(
    shop: Shop,
) -> None:
    async with questions_about_contents(shop) as asked:
        shop.send("m1", n=1)
        await shop.loop(record).drain()

    assert asked == []


@pytest.mark.parametrize("bodies", [(b'{"n":1}', None), (None, b'{"n":1}')])
@pytest.mark.parametrize("keep_payload", [False, True])
async def test_no_content_is_another_content_than_any(
    shop: Shop, bodies: tuple[bytes | None, bytes | None], keep_payload: bool
) -> None:
    """A tombstone under a used id, and what came under a tombstone's, passed for duplicates."""

    async def handler(event: dict[str, int] | None, ctx: Context) -> None:
        await record(event or {"n": 0}, ctx)

    first, second = bodies
    for body in (first, second, first, second):
        told = {"event_id": "m1", "event_type": "OrderCreated"}
        shop.bus.put(Incoming(TOPIC, "k", told, body))
        await shop.loop(handler, replace(QUICK, keep_payload=keep_payload)).drain()

    assert await shop.effects() == ["m1"]
    assert await shop.count("inbox_parked", "reason = 'content-mismatch'") == 1
    assert shop.seen.outcomes == {"new": 1, "parked": 1, "duplicate": 2}


@asynccontextmanager
async def questions_about_contents(shop: Shop) -> AsyncIterator[list[str]]:
    asked: list[str] = []

    def sent(_c: Connection, _cursor: Any, statement: str, _p: Any, _x: Any, _many: bool) -> None:
        if statement.startswith("SELECT") and "payload_hash" in statement:
            asked.append(statement)

    engine = shop.database.engine.sync_engine
    event.listen(engine, "before_cursor_execute", sent)
    try:
        yield asked
    finally:
        event.remove(engine, "before_cursor_execute", sent)


async def test_of_an_id_with_ever_new_contents_only_some_are_read(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each new one was compared with all before it, which were read for that, bodies and all."""
    one = item(1, None, tenant="default")
    rows = [
        {
            "tenant_id": "default",
            "parked_id": id_maker()(),
            "consumer": CONSUMER,
            "message_id": message_id,
            "topic": "t",
            "state": "parked",
            "reason": "content-mismatch",
            "holds_key": 0,
            "seq": n,
            "body": str(n).encode(),
        }
        for n, message_id in enumerate([one.message_id] * 100 + ["m2"])
    ]
    async with shop.database.engine.begin() as connection:
        await connection.execute(insert(inbox_parked), rows)
    monkeypatch.setattr(parked_module, "Known", list)
    parked = ParkedMessages(CONSUMER, id_maker())

    async with shop.database.sessions() as session:
        _, found = await parked.look_up(session, "default", [one, item(2, "k", tenant="default")])

    ids = [stored.message_id for stored in found]  # type: ignore[attr-defined]  # it is a list here
    assert 1 <= ids.count(one.message_id) <= 10
    assert ids.count("m2") == 1


async def test_all_contents_of_an_id_are_kept_though_not_all_are_compared(shop: Shop) -> None:
    for n in range(30):
        shop.send("m1", n=n)
        await shop.loop(config=ONE_LANE).drain()

    distinct = await shop.database.scalar("SELECT count(DISTINCT body) FROM inbox_parked")
    assert distinct == 29
    assert await shop.effects() == ["m1"]
