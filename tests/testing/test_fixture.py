"""The fixture `pillarbox`: a service in the test's own transaction, with a bus in memory."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import httpx
import pytest
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import async_sessionmaker

from pillarbox import OutboxRecord, SqlAlchemyOutbox
from pillarbox.errors import InvalidConfig
from pillarbox.testing import BoxUnderTest, rolled_back, under_test
from tests.support.database import Database, on
from tests.testing.conftest import Count
from tests.testing.shop import ORDER, Order, OrderCreated, Payment, PaymentProcessed, Refusal, Shop

on_each = on("postgres18+asyncpg", "postgres18+psycopg", "sqlite+aiosqlite")
on_two = on("postgres18+asyncpg", "sqlite+aiosqlite")
on_one = on("postgres18+asyncpg")
K1 = {"Idempotency-Key": "k1"}


TABLES = ("outbox", "testing_orders", "testing_payments", "inbox", "idempotency", "outbox_member")


async def rows(database: Database) -> dict[str, int]:
    return {name: await database.scalar(f"SELECT count(*) FROM {name}") for name in TABLES}


def created(order_id: str) -> OrderCreated:
    return OrderCreated(order_id, Decimal(1))


@on_each
async def test_paid_once(pillarbox: BoxUnderTest, client: httpx.AsyncClient, count: Count) -> None:
    await client.post("/orders", json=ORDER, headers={"Idempotency-Key": "k1"})
    pillarbox.assert_recorded("OrderCreated", key="o-1")
    await pillarbox.deliver(duplicates=2)  # outbox -> memory bus -> consumers, inline
    assert await count(Payment) == 1


@on_each
async def test_nothing_of_a_test_stays_in_the_database(database: Database, shop: Shop) -> None:
    before = await rows(database)
    async with rolled_back(shop.box.engine) as connection, under_test(shop.box, connection) as box:
        transport = httpx.ASGITransport(shop.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            answered = await client.post("/orders", json=ORDER, headers=K1)
        done = await box.deliver()
        inside = await connection.scalar(select(func.count()).select_from(OutboxRecord))

    assert (answered.status_code, inside, done.published, done.received) == (201, 2, 2, 1)
    assert await rows(database) == before


@on_two
async def test_the_box_is_what_it_was_when_the_test_is_over(database: Database, shop: Shop) -> None:
    box = shop.box
    before = dict(box.session_factory.kw)

    async with rolled_back(box.engine) as connection, under_test(box, connection):
        assert box.session_factory.kw["bind"] is connection

    assert box.session_factory.kw == before
    async with box.session_factory() as session:
        await SqlAlchemyOutbox(session).add(created("o-1"), key="o-1")
        await session.commit()
    assert await database.event_types() == ["OrderCreated"]


@on_each
async def test_a_repeated_command_is_answered_from_the_record(
    pillarbox: BoxUnderTest, client: httpx.AsyncClient, count: Count
) -> None:
    first = await client.post("/orders", json=ORDER, headers=K1)
    again = await client.post("/orders", json=ORDER, headers=K1)
    other = await client.post("/orders", json=ORDER | {"total": "1"}, headers=K1)

    assert (first.status_code, again.status_code, other.status_code) == (201, 201, 422)
    assert again.headers["idempotency-replayed"] == "true"
    assert await count(Order) == len(pillarbox.outbox.events) == 1


@on_two
async def test_a_request_that_fails_leaves_neither_row_nor_event(
    pillarbox: BoxUnderTest, client: httpx.AsyncClient, shop: Shop, count: Count
) -> None:
    shop.refuses.add("o-1")

    with pytest.raises(Refusal):
        await client.post("/orders", json=ORDER, headers=K1)

    pillarbox.assert_not_recorded("OrderCreated")
    assert await count(Order) == 0
    shop.refuses.clear()
    assert (await client.post("/orders", json=ORDER, headers=K1)).status_code == 201


@on_two
async def test_the_journal_forgets_what_a_savepoint_took_back(pillarbox: BoxUnderTest) -> None:
    async with pillarbox.box.session_factory() as session:
        outbox = SqlAlchemyOutbox(session)
        await outbox.add(created("kept"), key="kept")
        await session.commit()
    async with pillarbox.box.unit_of_work() as outer:
        await outer.repository(Order).save(Order.create("undone", Decimal(1)))
        async with pillarbox.box.session_factory() as inner:
            await SqlAlchemyOutbox(inner).add(created("inner"), key="inner")
            await inner.commit()
        await outer.rollback()
    await pillarbox.outbox.add(created("last"), key="last")

    async with pillarbox.box.session_factory() as session:
        stored = await session.scalars(select(OutboxRecord.key).order_by(OutboxRecord.seq))
        assert [event.key for event in pillarbox.outbox.events] == list(stored)
    assert pillarbox.outbox.events[0].payload == {"order_id": "kept", "total": "1"}
    assert pillarbox.outbox.events[-1].key == "last"


@on_two
async def test_a_handlers_events_are_delivered_too(pillarbox: BoxUnderTest) -> None:
    await pillarbox.outbox.add(created("o-1"), key="o-1")

    done = await pillarbox.deliver()

    assert (done.published, done.received, dict(done.outcomes)) == (2, 1, {"new": 1})
    assert pillarbox.assert_recorded(PaymentProcessed, key="o-1").topic == "orders.payment"
    assert [message.event_type for message in pillarbox.bus.messages] == [
        "OrderCreated",
        "PaymentProcessed",
    ]


@on_two
@pytest.mark.parametrize("point", ["claim", "publish", "handle", "commit"])
async def test_a_process_that_dies_anywhere_loses_and_doubles_nothing(
    pillarbox: BoxUnderTest, count: Count, point: str
) -> None:
    for n in range(3):
        await pillarbox.outbox.add(created(f"o-{n}"), key=f"o-{n}")

    pillarbox.crash_after(point)  # type: ignore[arg-type] # one of the names, as a text
    done = await pillarbox.deliver()

    assert done.crashes == 1
    assert await count(Payment) == 3
    assert done.published > 6 if point == "publish" else done.published == 6
    assert done.received > 3 if point in ("publish", "handle", "commit") else done.received == 3


@on_two
async def test_while_the_broker_is_down_events_wait(pillarbox: BoxUnderTest, count: Count) -> None:
    await pillarbox.outbox.add(created("o-1"), key="o-1")

    with pillarbox.bus.down():
        during = await pillarbox.deliver()
    after = await pillarbox.deliver()

    assert (during.published, after.published) == (0, 2)
    assert await count(Payment) == 1


@on_one
async def test_a_slow_broker_is_waited_for(pillarbox: BoxUnderTest) -> None:
    await pillarbox.outbox.add(created("o-1"), key="o-1")
    began = asyncio.get_running_loop().time()

    with pillarbox.bus.slow(timedelta(milliseconds=60)):
        done = await pillarbox.deliver()

    assert done.published == 2
    assert asyncio.get_running_loop().time() - began >= 0.12


@on_one
async def test_another_order_keeps_each_keys_own(pillarbox: BoxUnderTest, shop: Shop) -> None:
    seen: list[str] = []
    watch = shop.box.consumer("watch", topics=["orders.order"])

    @watch.on("OrderCreated")
    async def note(event: OrderCreated) -> None:
        seen.append(event.order_id)

    orders = [f"{n % 9}-{n:02}" for n in range(36)]
    for order in orders:
        await pillarbox.outbox.add(created(order), key=order[0])

    await pillarbox.deliver(reorder=7)
    first = list(seen)
    seen.clear()
    pillarbox.bus.redeliver()
    await pillarbox.deliver(reorder=7, duplicates=1)

    assert sorted(first) == sorted(orders)
    assert first != orders
    assert all(_of(key, first) == _of(key, orders) for key in "012345678")
    assert seen == []


def _of(key: str, orders: list[str]) -> list[str]:
    return [order for order in orders if order.startswith(key)]


@on_two
async def test_a_handler_that_fails_makes_the_test_fail_with_its_reason(
    pillarbox: BoxUnderTest, shop: Shop, count: Count
) -> None:
    shop.refuses.add("o-1")
    await pillarbox.outbox.add(created("o-1"), key="o-1")

    with pytest.raises(AssertionError, match=r"payments could not .* \(key 'o-1'\): Refusal: o-1"):
        await pillarbox.deliver()

    assert await count(Payment) == 0
    pillarbox.assert_not_recorded(PaymentProcessed)


@on_two
async def test_a_failed_message_comes_again_when_time_has_passed(
    pillarbox: BoxUnderTest, shop: Shop, count: Count
) -> None:
    shop.refuses.add("o-1")
    await pillarbox.outbox.add(created("o-1"), key="o-1")
    failed = await pillarbox.deliver(failures="keep")
    shop.refuses.clear()

    too_early = await pillarbox.deliver()
    await pillarbox.clock.advance(timedelta(minutes=5))
    await pillarbox.deliver()

    assert (failed.troubled, too_early.received) == (1, 0)
    assert await count(Payment) == 1


@on_one
async def test_a_failed_message_waits_however_long_the_test_takes(
    pillarbox: BoxUnderTest, shop: Shop
) -> None:
    pay = shop.box.consumers["payments"]
    pay.config = replace(pay.config, retry_delay=0.01, retry_delay_max=0.01)
    shop.refuses.add("o-1")
    await pillarbox.outbox.add(created("o-1"), key="o-1")

    first = await pillarbox.deliver(failures="keep")
    again = await pillarbox.deliver(failures="keep")

    assert (first.troubled, again.troubled) == (1, 0)


@on_two
async def test_an_event_for_later_is_delivered_when_its_time_has_come(
    pillarbox: BoxUnderTest,
) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    await pillarbox.outbox.add(created("o-1"), key="o-1", deliver_at=later)

    early = await pillarbox.deliver()
    await pillarbox.clock.advance(timedelta(hours=2))
    due = await pillarbox.deliver()

    assert (early.published, due.published) == (0, 2)
    assert pillarbox.clock.now() - datetime.now(UTC) > timedelta(minutes=119)


@on_two
async def test_a_key_expires_when_its_time_has_passed(
    pillarbox: BoxUnderTest, client: httpx.AsyncClient
) -> None:
    await client.post("/orders", json=ORDER, headers=K1)

    await pillarbox.clock.advance(timedelta(hours=25))
    other = await client.post("/orders", json={"id": "o-2", "total": "1"}, headers=K1)

    assert other.status_code == 201
    pillarbox.assert_recorded("OrderCreated", key="o-2")


@on_one
async def test_what_is_not_recorded_is_said_with_what_is(pillarbox: BoxUnderTest) -> None:
    with pytest.raises(AssertionError, match="OrderCreated is not recorded; nothing is"):
        pillarbox.assert_recorded(OrderCreated)
    await pillarbox.outbox.add(created("o-1"), key="o-1")

    with pytest.raises(AssertionError) as found:
        pillarbox.assert_recorded("OrderCreated", key="o-2")
    with pytest.raises(AssertionError, match=r"OrderCreated \(key 'o-1'.*\) is recorded"):
        pillarbox.assert_not_recorded("OrderCreated", key="o-1")

    assert str(found.value) == (
        "OrderCreated (key 'o-2') is not recorded; "
        "recorded: OrderCreated (key 'o-1', topic 'orders.order')"
    )
    pillarbox.assert_not_recorded("OrderCreated", key="o-2")


@on_one
async def test_an_event_that_is_recorded_soon_can_be_waited_for(pillarbox: BoxUnderTest) -> None:
    soon = asyncio.ensure_future(pillarbox.outbox.add(created("o-1"), key="o-1"))

    event = await pillarbox.assert_recorded(OrderCreated, within=timedelta(seconds=10))

    assert event.key == "o-1"
    await soon
    with pytest.raises(AssertionError, match="OrderPaid is not recorded"):
        await pillarbox.assert_recorded("OrderPaid", within=timedelta(milliseconds=5))


@on_one
async def test_a_wait_that_nobody_awaits_fails_the_test(shop: Shop) -> None:
    with pytest.raises(AssertionError, match="was not awaited"):
        async with rolled_back(shop.box.engine) as own, under_test(shop.box, own) as box:
            box.assert_recorded("OrderCreated", within=timedelta(seconds=1))


@on_one
async def test_a_crash_that_never_comes_fails_the_test(shop: Shop) -> None:
    with pytest.raises(AssertionError, match=r"crash_after\('publish'\) was never reached"):
        async with rolled_back(shop.box.engine) as own, under_test(shop.box, own) as box:
            box.crash_after("publish")
    with pytest.raises(InvalidConfig, match="crash_after is 'lunch'"):
        async with rolled_back(shop.box.engine) as own, under_test(shop.box, own) as box:
            box.crash_after("lunch")  # type: ignore[arg-type] # what is refused


@on_one
async def test_only_a_connection_in_a_transaction_is_taken(database: Database, shop: Shop) -> None:
    async with database.engine.connect() as connection:
        with pytest.raises(InvalidConfig, match="is in no transaction"):
            await under_test(shop.box, connection).__aenter__()
    async with database.sessions() as session:
        with pytest.raises(InvalidConfig, match=r"is a AsyncSession; .*session.connection\(\)"):
            await under_test(shop.box, session).__aenter__()  # type: ignore[arg-type] # refused


@on_two
async def test_a_session_of_the_tests_own_shares_its_transaction(
    database: Database, shop: Shop
) -> None:
    async with database.engine.connect() as connection, connection.begin() as outer:
        sessions = async_sessionmaker(connection, join_transaction_mode="create_savepoint")
        async with sessions() as session, under_test(shop.box, await session.connection()) as box:
            session.add(Order(id="mine", total=Decimal(1)))
            await session.commit()
            await box.outbox.add(created("o-1"), key="o-1")
            await box.deliver()
            assert await session.scalar(select(func.count()).select_from(Payment)) == 1
            async with box.box.session_factory() as other:
                assert await other.scalar(select(Order.id)) == "mine"
        await outer.rollback()


@on_one
async def test_a_box_that_works_already_is_not_lent(shop: Shop, database: Database) -> None:
    async with shop.box.running(consumers=True), rolled_back(database.engine) as own:
        with pytest.raises(InvalidConfig, match="runs a projector or consumers"):
            await under_test(shop.box, own).__aenter__()


@on_one
@pytest.mark.pillarbox(consumers=[])
async def test_a_marker_names_the_consumers_that_take_part(
    pillarbox: BoxUnderTest, count: Count
) -> None:
    await pillarbox.outbox.add(created("o-1"), key="o-1")

    done = await pillarbox.deliver()

    assert (done.published, done.received) == (1, 0)
    assert await count(Payment) == 0
