"""Bad input is refused by the call that brings it; nothing is written, and the work can go on."""

import math
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import uuid4

import pytest

from pillarbox import DomainEvent, JsonText, NewEvent, SqlAlchemyOutbox, SQLAlchemyUnitOfWork
from pillarbox.errors import (
    InvalidEvent,
    InvalidEventId,
    InvalidHeader,
    InvalidKey,
    InvalidTime,
    InvalidTopic,
    PayloadNotJson,
    PayloadNotUnicode,
    PayloadTooDeep,
    PayloadTooLarge,
    TopicUnknown,
)
from pillarbox.event.rules import KAFKA, NATS, PORTABLE, PULSAR, RABBITMQ, REDIS, BusRules
from pillarbox.outbox.settings import CaptureSettings
from tests.support.database import Database, on
from tests.support.orders import Order


class Bad(NamedTuple):
    name: str
    options: dict[str, Any]
    error: type[InvalidEvent]
    field: str


class Homeless(DomainEvent):
    text: str


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 - the input under test
CASES = [
    Bad("nan", {"payload": {"price": math.nan}}, PayloadNotJson, "payload.price"),
    Bad("infinity", {"payload": {"a": [1, -math.inf]}}, PayloadNotJson, "payload.a[1]"),
    Bad("nul", {"payload": {"a": "x\0"}}, PayloadNotJson, "payload.a"),
    Bad("surrogate", {"payload": {"a": "\ud800"}}, PayloadNotUnicode, "payload.a"),
    Bad("big int", {"payload": {"n": 2**63}}, PayloadNotJson, "payload.n"),
    Bad("deep", {"payload": deep(65)}, PayloadTooDeep, "payload" + ".a" * 16 + "…"),
    Bad("int key", {"payload": {1: "a"}}, PayloadNotJson, "payload"),
    Bad("set", {"payload": {"tags": {"a"}}}, PayloadNotJson, "payload.tags"),
    Bad("object", {"payload": {"o": object()}}, PayloadNotJson, "payload.o"),
    Bad("none", {"payload": None}, PayloadNotJson, "payload"),
    Bad("missing", {}, InvalidEvent, "payload"),
    Bad("json text", {"payload": JsonText('{"a": NaN}')}, PayloadNotJson, "payload.a"),
    Bad("duplicate keys", {"payload": JsonText('{"a":1,"a":2}')}, PayloadNotJson, "payload"),
    Bad("huge exponent", {"payload": JsonText('{"a":1e131071}')}, PayloadNotJson, "payload.a"),
    Bad("bytes, no type", {"payload": b"x"}, InvalidEvent, "content_type"),
    Bad("json as avro", {"payload": {}, "content_type": "a/avro"}, InvalidEvent, "content_type"),
    Bad("both", {"event": Homeless("x"), "payload": {}}, InvalidEvent, "payload"),
    Bad("tombstone and payload", {"payload": {}, "tombstone": True}, InvalidEvent, "tombstone"),
    Bad("empty topic", {"topic": "", "payload": {}}, InvalidTopic, "topic"),
    Bad("spaces", {"topic": "a b", "payload": {}}, InvalidTopic, "topic"),
    Bad("wildcard", {"topic": "a.*", "payload": {}}, InvalidTopic, "topic"),
    Bad("dots", {"topic": "..", "payload": {}}, InvalidTopic, "topic"),
    Bad("long topic", {"topic": "t" * 250, "payload": {}}, InvalidTopic, "topic"),
    Bad("no route", {"topic": None, "event": Homeless("x")}, TopicUnknown, "topic"),
    Bad("empty key", {"payload": {}, "key": ""}, InvalidKey, "key"),
    Bad("long key", {"payload": {}, "key": "k" * 256}, InvalidKey, "key"),
    Bad("padded key", {"payload": {}, "key": "k "}, InvalidKey, "key"),
    Bad("float key", {"payload": {}, "key": 1.5}, InvalidEvent, "key"),
    Bad("bool key", {"payload": {}, "key": True}, InvalidEvent, "key"),
    Bad("empty aggregate", {"payload": {}, "aggregate_id": ""}, InvalidKey, "aggregate_id"),
    Bad("empty type", {"payload": {}, "event_type": ""}, InvalidKey, "event_type"),
    Bad("header newline", {"payload": {}, "headers": {"a": "x\r\ny"}}, InvalidHeader, 'headers["a"]'),
    Bad("header number", {"payload": {}, "headers": {"a": 1}}, InvalidHeader, 'headers["a"]'),
    Bad("reserved", {"payload": {}, "headers": {"event_id": "1"}}, InvalidHeader, 'headers["event_id"]'),
    Bad("many", {"payload": {}, "headers": {f"h{n}": "" for n in range(65)}}, InvalidHeader, "headers"),
    Bad("not a uuid", {"payload": {}, "event_id": "evt-001"}, InvalidEventId, "event_id"),
    Bad("naive time", {"payload": {}, "deliver_at": NAIVE}, InvalidTime, "deliver_at"),
    Bad("year 1", {"payload": {}, "expires_at": datetime(1, 1, 1, tzinfo=UTC)}, InvalidTime, "expires_at"),
    Bad("version", {"payload": {}, "aggregate_version": -1}, InvalidEvent, "aggregate_version"),
    Bad("number", {"payload": {}, "event_number": 2**31}, InvalidEvent, "event_number"),
    Bad("schema", {"payload": {}, "schema_version": "2"}, InvalidEvent, "schema_version"),
]  # fmt: skip


@pytest.mark.parametrize("bad", CASES, ids=[case.name for case in CASES])
@on("postgres18+asyncpg", "sqlite+aiosqlite")
async def test_a_bad_event_is_refused_at_the_call_and_the_transaction_goes_on(
    bad: Bad, database: Database
) -> None:
    async with database.sessions() as session:
        outbox = SqlAlchemyOutbox(session)
        session.add(Order(id="o-1"))
        await session.flush()

        with pytest.raises(bad.error) as refused:
            await outbox.add(**{"topic": "orders.order", **bad.options})
        await outbox.add(topic="orders.order", payload={"good": True})
        await session.commit()

    assert refused.value.field.startswith(bad.field)
    assert refused.value.problem
    assert refused.value.remedy
    assert [event.payload for event in await database.events()] == [{"good": True}]
    assert await database.order_ids() == ["o-1"]


@on("postgres18+asyncpg")
async def test_one_bad_event_of_many_leaves_none_of_them(database: Database) -> None:
    good = NewEvent(topic="orders.order", payload={"n": 1})
    bad = NewEvent(topic="orders.order", payload={"n": math.nan})

    async with database.sessions() as session:
        with pytest.raises(PayloadNotJson):
            await SqlAlchemyOutbox(session).add_many([good, bad, good])
        await session.commit()

    assert await database.count() == 0


async def test_an_aggregate_refuses_a_bad_event_where_it_is_raised() -> None:
    order = Order(id="o-1")

    with pytest.raises(PayloadNotJson, match=r"payload\.text is NaN"):
        order.note(math.nan)  # type: ignore[arg-type]  # the input under test

    assert order.pending_events == ()


@on("postgres18+asyncpg", "sqlite+aiosqlite")
async def test_a_bad_option_of_a_raised_event_stops_the_commit_before_anything_is_written(
    database: Database,
) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        order = Order(id="o-1")
        order.note("hello", topic="not a topic")
        await uow.repository(Order).save(order)

        with pytest.raises(InvalidTopic):
            await uow.commit()

    assert await database.count() == 0
    assert await database.order_ids() == []


@pytest.mark.parametrize(
    "rules", [KAFKA, NATS, PULSAR, RABBITMQ, REDIS, PORTABLE], ids=lambda r: r.name
)
@on("sqlite+aiosqlite")
async def test_the_limit_of_the_bus_in_use_decides_on_size_and_the_error_names_the_way_out(
    rules: BusRules, database: Database
) -> None:
    settings = CaptureSettings(rules=rules)
    too_large = {"blob": "x" * rules.message_max_bytes}

    async with database.sessions() as session:
        with pytest.raises(PayloadTooLarge, match="claim check") as refused:
            await SqlAlchemyOutbox(session, settings=settings).add(topic="t.t", payload=too_large)

    assert refused.value.bus == rules.name
    assert refused.value.limit == rules.message_max_bytes
    assert refused.value.size > refused.value.limit


@on("postgres18+asyncpg", "postgres18+psycopg", "sqlite+aiosqlite")
async def test_the_largest_accepted_payload_is_read_back_whole(database: Database) -> None:
    payload = {"blob": "é" * 400_000}

    async with database.sessions() as session:
        await SqlAlchemyOutbox(session).add(topic="t.t", payload=payload)
        await session.commit()

    assert [event.payload for event in await database.events()] == [payload]


@on("postgres18+asyncpg")
async def test_a_random_id_of_the_callers_own_is_fine_in_a_plain_table(database: Database) -> None:
    given = uuid4()

    async with database.sessions() as session:
        returned = await SqlAlchemyOutbox(session).add(topic="t.t", payload={}, event_id=str(given))
        await session.commit()

    assert returned == given
    assert [event.id for event in await database.events()] == [given]
