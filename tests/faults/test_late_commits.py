"""A transaction that drew its number long ago is delivered as soon as it commits."""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import NamedTuple

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

from pillarbox import JsonText, SqlAlchemyOutbox
from pillarbox.database import async_url
from pillarbox.event.shard import place_of
from pillarbox.outbox.wakeup import CHANNEL
from tests.faults.checker import first_copies
from tests.faults.history import IDENTITY, Faults, copy_of, digest
from tests.faults.rig import Rig
from tests.faults.workload import TOPICS, Event, record
from tests.schema.rows import new_id
from tests.support.waiting import until

SLEEP_IDLE = 1.0
MACHINE = 0.5  # what a busy machine may add
REST_SECONDS = 30.0
Sessions = async_sessionmaker[AsyncSession]
_ROW_ALONE = (
    b"INSERT INTO outbox (id, occurred_at, shard_hash, tenant_id, event_type, topic, key, "
    b"event_metadata, payload) VALUES (%(id)s, now(), %(hash)s, %(tenant)s, 'Late', %(topic)s, "
    b"%(key)s, %(metadata)s, %(payload)s)"
)
_LEDGER = (
    b"INSERT INTO ledger (tenant, key, n, message_id, topic, sha256) "
    b"VALUES (%s, %s, %s, %s, %s, %s)"
)

pytestmark = [pytest.mark.faults, pytest.mark.parametrize("rig", ["nats"], indirect=True)]


class Late(NamedTuple):
    """An event whose transaction has committed at last; `ledger` is what must still be noted."""

    message_id: str
    committed_at: float
    ledger: tuple[object, ...] | None = None


@asynccontextmanager
async def sessions_of(rig: Rig) -> AsyncIterator[Sessions]:
    engine = create_async_engine(
        async_url(rig.database.replace("postgresql:", "postgresql+psycopg:")), pool_size=20
    )
    try:
        yield async_sessionmaker(engine)
    finally:
        await engine.dispose()


async def commit_late(sessions: Sessions, number: int, seconds: float, *, changes: bool) -> Late:
    """Draw a number now and commit later, perhaps after a change of another row."""
    body = f'{{"late":{number}}}'
    event = Event("late", f"key-{number}", TOPICS[0], body.encode(), {"payload": JsonText(body)})
    async with sessions() as session:
        message_id = await record(session, event)
        await SqlAlchemyOutbox(session).flush()
        await grows_old(seconds)
        if changes:
            await session.execute(
                text("INSERT INTO ledger_key (tenant, key) VALUES ('other', :key)"),
                {"key": message_id},
            )
        await session.commit()
        return Late(message_id, time.time())


async def grows_old(seconds: float) -> None:
    due = time.monotonic() + seconds

    async def old_enough() -> bool:
        return time.monotonic() > due

    await until(old_enough, "the transaction is old", seconds + 10)


async def commit_row_alone(rig: Rig, number: int, seconds: float) -> Late:
    """Write nothing but a row of the outbox, commit later, and tell nobody of it."""
    place = {"tenant": "alone", "key": f"key-{number}"}
    body = f'{{"alone":{number}}}'
    row = {
        **place,
        "id": new_id(datetime.now(UTC)),
        "hash": place_of(place["tenant"], place["key"]).shard_hash,
        "topic": TOPICS[0],
        "payload": body,
        "metadata": json.dumps(dict(zip(IDENTITY, (*place.values(), "1"), strict=True))),
    }
    async with await psycopg.AsyncConnection.connect(rig.database) as connection:
        await connection.execute(_ROW_ALONE, row)
        await grows_old(seconds)
        await connection.commit()
    ledger = (*place.values(), 1, row["id"], TOPICS[0], digest(body.encode()))
    return Late(str(row["id"]), time.time(), ledger)


async def rows_alone(
    rig: Rig, first: int, rows: int, shortest: float, longest: float
) -> list[Late]:
    """Run such transactions side by side."""
    chance = random.Random(rig.seed + first)
    return await asyncio.gather(
        *(
            commit_row_alone(rig, first + number, chance.uniform(shortest, longest))
            for number in range(rows)
        )
    )


async def late_ones(rig: Rig, transactions: int, shortest: float, longest: float) -> list[Late]:
    """Run such transactions side by side, every other one with a change of another row."""
    chance = random.Random(rig.seed)
    async with sessions_of(rig) as sessions:
        return await asyncio.gather(
            *(
                commit_late(
                    sessions, number, chance.uniform(shortest, longest), changes=number % 2 == 0
                )
                for number in range(transactions)
            )
        )


def are_delivered_in_time(rig: Rig, late: list[Late]) -> None:
    """Wait for rest; compare each commit with the broker's time of storing its event."""
    rig.come_to_rest(REST_SECONDS)
    rig.stop_projectors()
    with psycopg.connect(rig.database) as connection:
        for one in late:
            if one.ledger is not None:
                connection.execute(_LEDGER, one.ledger)
    report = rig.report(Faults())
    first = first_copies([copy_of(message) for message in rig.ground.read()])
    waits = sorted(first[one.message_id].at - one.committed_at for one in late)
    rig.tell(f"{report}\nlongest waits after a late commit: {[f'{w:.3f}' for w in waits[-5:]]}")
    assert not report.violations, report
    assert waits[-1] < SLEEP_IDLE + MACHINE


def test_late_commits_beside_steady_traffic_are_delivered_at_once(rig: Rig) -> None:
    rig.start_projector(sleep_idle=SLEEP_IDLE)
    rig.start_workload(seconds=12, writers=3, rate=100)
    rig.until(lambda: rig.sent() > 50, "events flow", REST_SECONDS)

    late = [one for _ in range(3) for one in asyncio.run(late_ones(rig, 15, 0.5, 3.0))]

    are_delivered_in_time(rig, late)


def test_a_late_commit_without_traffic_is_delivered_at_once(rig: Rig) -> None:
    rig.start_projector(sleep_idle=SLEEP_IDLE)
    rig.until(lambda: rig.projectors[0].lines("owns") > 0, "the projector runs", REST_SECONDS)

    late = asyncio.run(late_ones(rig, 6, 0.5, 3.0))

    are_delivered_in_time(rig, late)


def test_a_row_that_is_alone_in_its_late_transaction_is_found_without_a_wake_up(rig: Rig) -> None:
    rig.start_projector(sleep_idle=SLEEP_IDLE)
    rig.until(lambda: rig.projectors[0].lines("owns") > 0, "the projector runs", REST_SECONDS)
    with psycopg.connect(rig.database, autocommit=True) as ear:
        ear.execute(f"LISTEN {CHANNEL}".encode())

        late: list[Late] = []
        for round_ in range(4):
            late += asyncio.run(rows_alone(rig, 10 * round_, 4, 1.0, 4.0))

        are_delivered_in_time(rig, late)
        assert not [*ear.notifies(timeout=0)]


@pytest.mark.timeout(240)
def test_a_transaction_of_a_minute_is_delivered_at_once(rig: Rig) -> None:
    rig.start_projector(sleep_idle=SLEEP_IDLE)
    rig.start_workload(seconds=66, writers=3, rate=100)
    rig.until(lambda: rig.sent() > 50, "events flow", REST_SECONDS)

    late = asyncio.run(of_a_minute(rig))

    are_delivered_in_time(rig, late)


async def of_a_minute(rig: Rig) -> list[Late]:
    kinds = (late_ones(rig, 10, 58, 62), rows_alone(rig, 0, 5, 58, 62))
    return [one for some in await asyncio.gather(*kinds) for one in some]
