"""A running consumer removes what its inbox need not remember, and nothing else."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import event, insert

from pillarbox.consumer.metrics import ConsumerMetrics
from pillarbox.inbox.register import CLEANUP_BATCH
from pillarbox.schema.tables import inbox, inbox_attempt
from tests.consumer.rig import CONSUMER, QUICK, Shop
from tests.support.database import Database, on
from tests.support.waiting import until

pytestmark = on("postgres18+psycopg", "sqlite+aiosqlite")

OFTEN = replace(QUICK, cleanup_every=0.01, retention_days=30)


async def fill(database: Database, count: int, days: float, consumer: str = CONSUMER) -> None:
    """Write records as old as this, half of them of another tenant."""
    at = datetime.now(UTC) - timedelta(days=days)
    rows = [
        {
            "tenant_id": ("default", "acme")[n % 2],
            "consumer": consumer,
            "message_id": f"{days}-{n}",
            "event_type": "T",
            "processed_at": at,
        }
        for n in range(count)
    ]
    async with database.engine.begin() as connection:
        await connection.execute(insert(inbox), rows)


@contextmanager
def deletions(database: Database, *, failing: int = 0) -> Iterator[list[int]]:
    """Count the rows of each statement that deletes records; the first ones fail."""
    counts: list[int] = []
    failures = iter(range(failing))

    def refuse(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if "DELETE FROM inbox " in statement and next(failures, None) is not None:
            raise ValueError("not this time")

    def note(_connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if "DELETE FROM inbox " in statement:
            counts.append(cursor.rowcount)

    engine = database.engine.sync_engine
    event.listen(engine, "before_cursor_execute", refuse)
    event.listen(engine, "after_cursor_execute", note)
    yield counts
    event.remove(engine, "before_cursor_execute", refuse)
    event.remove(engine, "after_cursor_execute", note)


async def test_old_records_go_in_batches_while_messages_are_handled(shop: Shop) -> None:
    await fill(shop.database, 2 * CLEANUP_BATCH + 5, days=30.1)
    await fill(shop.database, 3, days=29.9)
    await fill(shop.database, 2, days=400, consumer="another")
    metrics = ConsumerMetrics(CONSUMER)

    with deletions(shop.database) as counts:
        async with shop.running(shop.loop(config=OFTEN, observer=metrics)):
            shop.send("m1")
            await until(lambda: shop.effects_are(1), "the message is handled")
            await until(lambda: _records(shop, 3 + 2 + 1), "the old records are gone")

    assert counts[:3] == [CLEANUP_BATCH, CLEANUP_BATCH, 5]
    assert await shop.count("inbox", "message_id LIKE '29.9-%'") == 3
    assert await shop.count("inbox", "consumer = 'another'") == 2
    told = {sample.name: sample.value for sample in metrics.snapshot()}
    assert told["pillarbox_inbox_forgotten_records_total"] == 2 * CLEANUP_BATCH + 5


async def test_attempts_that_nobody_will_finish_go_as_well(shop: Shop) -> None:
    now = datetime.now(UTC)
    async with shop.database.engine.begin() as connection:
        for name, at in (("old", now - timedelta(days=31)), ("new", now)):
            place = {"tenant_id": "default", "consumer": CONSUMER, "message_id": name}
            row = {**place, "first_at": at, "last_at": at, "failed": 1}
            await connection.execute(insert(inbox_attempt), row)

    async def only_the_new_one() -> bool:
        return await shop.count("inbox_attempt") == 1

    async with shop.running(shop.loop(config=OFTEN)):
        await until(only_the_new_one, "the old attempt is gone")

    assert await shop.count("inbox_attempt", "message_id = 'new'") == 1


async def test_a_clean_up_that_fails_is_tried_again_and_messages_go_on(shop: Shop) -> None:
    await fill(shop.database, 5, days=40)

    with deletions(shop.database, failing=2) as counts:
        async with shop.running(shop.loop(config=OFTEN)):
            shop.send("m1")
            await until(lambda: shop.effects_are(1), "the message is handled")
            await until(lambda: _records(shop, 1), "the old records are gone")

    assert counts[0] == 5


async def test_nothing_is_looked_for_before_its_time_and_a_stop_does_not_wait_for_it(
    shop: Shop,
) -> None:
    await fill(shop.database, 5, days=40)

    with deletions(shop.database) as counts:
        async with asyncio.timeout(QUICK.stop_timeout):
            async with shop.running(shop.loop(config=replace(OFTEN, cleanup_every=3_600))):
                shop.send("m1")
                await until(lambda: shop.effects_are(1), "the message is handled")

    assert counts == []
    assert await shop.count("inbox") == 5 + 1


async def _records(shop: Shop, number: int) -> bool:
    return await shop.count("inbox") == number
