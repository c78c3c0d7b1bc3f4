"""Replies find their step by correlation and cause; those that come twice or late do no harm."""

import json
from datetime import timedelta
from uuid import uuid4

import pytest

from pillarbox import Context, DomainEvent, Pillarbox, Saga, Why, step
from pillarbox.ops import SagaOps
from pillarbox.saga.machine import Verdict
from pillarbox.saga.observer import SagaObserver
from tests.saga.shop import (
    QUICK,
    Charge,
    InventoryReserved,
    OrderCreated,
    OutOfStock,
    PaymentProcessed,
    ReleaseInventory,
    ReserveInventory,
    Shop,
    careful_order,
    set_status,
)
from tests.support.database import Database, on

HERE = on("postgres18+psycopg", "sqlite+aiosqlite")


@HERE
async def test_a_participant_that_knows_of_no_saga_replies_with_its_correlation_and_cause(
    shop: Shop,
) -> None:
    await shop.order("o-1")

    await shop.settle()

    saga_id = str((await shop.row()).saga_id)
    (command,) = shop.sent("ReserveInventory")
    (reply,) = shop.sent("InventoryReserved")
    (start,) = shop.sent("OrderCreated")
    assert command.headers["correlationid"] == saga_id
    assert command.headers["causationid"] == start.event_id
    assert command.key == "o-1"
    assert reply.headers["correlationid"] == saga_id
    assert reply.headers["causationid"] == command.event_id


@HERE
async def test_a_start_event_that_comes_twice_starts_one_saga_even_when_the_inbox_has_forgotten(
    shop: Shop,
) -> None:
    await shop.order("o-1")
    await shop.saga_works()
    shop.bus.redeliver()
    await shop.saga_works()
    async with shop.database.engine.begin() as connection:
        await connection.exec_driver_sql("DELETE FROM inbox")
    await shop.bus.publish(shop.sent("OrderCreated"))

    await shop.settle()

    assert len(await shop.rows()) == 1
    assert (shop.heard.starts, shop.heard.again) == (1, 1)
    assert await shop.statuses() == {"o-1": "CONFIRMED"}


@HERE
async def test_replies_that_come_twice_late_after_the_end_or_from_elsewhere_do_nothing_and_are_listed(
    shop: Shop,
) -> None:
    await shop.order("o-1")
    await shop.settle("saga-place-order", "inventory")
    await shop.again("InventoryReserved")  # twice, while the next step is awaited
    await shop.again("InventoryReserved", headers={
        **shop.sent("InventoryReserved")[-1].headers, "causationid": str(uuid4()),
    })  # fmt: skip
    await shop.settle()
    await shop.again("PaymentProcessed")  # after the end
    await shop.again("PaymentProcessed", headers={"correlationid": str(uuid4())})  # of nobody
    await shop.again("PaymentProcessed", headers={})

    await shop.settle()

    row = await shop.row()
    assert row.state == "COMPLETED"
    assert await shop.outcomes() == {("reserve", "do"): "ok", ("charge", "do"): "ok"}
    assert await shop.strays() == ["ended", "foreign", "repeated"]
    assert shop.heard.strangers == 2
    assert sorted(shop.heard.verdicts) == ["ended", "foreign", "repeated", "taken", "taken"]
    assert len(shop.sent("Charge")) == 1
    shown = await SagaOps(shop.database.engine, actor="jane").show(row.saga_id)
    assert {stray.verdict: stray.step for stray in shown.strays} == {
        "repeated": "reserve",
        "foreign": None,
        "ended": "charge",
    }


@HERE
async def test_a_reply_that_comes_after_its_time_changes_nothing_and_its_step_is_undone(
    database: Database,
) -> None:
    shop = Shop(database, careful_order)
    await shop.clear()
    await shop.order("o-1")
    await shop.saga_works()
    for _ in range(2):  # the message, and its repetition
        await shop.time_passes()
        await shop.saga_works()
    assert (await shop.row()).state == "COMPENSATING"

    await shop.settle()

    assert shop.handled == [("reserve", "o-1"), ("reserve", "o-1"), ("release", "o-1")]
    assert await shop.statuses() == {"o-1": "REJECTED: reserve timed-out"}
    assert await shop.outcomes() == {("reserve", "do"): "timed-out", ("reserve", "undo"): "ok"}
    assert await shop.strays() in (["late", "late"], ["ended", "ended"], ["ended", "late"])
    assert shop.stock == set()


@HERE
async def test_the_reply_to_an_earlier_try_ends_the_step_and_the_second_reply_is_known(
    database: Database,
) -> None:
    shop = Shop(database, careful_order)
    await shop.clear()
    await shop.order("o-1")
    await shop.saga_works()
    await shop.time_passes()
    await shop.saga_works()
    assert (await shop.row()).tries == 2

    await shop.settle()

    assert len(shop.sent("ReserveInventory")) == 2
    assert len(shop.sent("Charge")) == 1
    assert await shop.strays() == ["repeated"]
    assert await shop.statuses() == {"o-1": "CONFIRMED"}


@HERE
@pytest.mark.parametrize("again", ["time-out", "operator"])
async def test_a_step_that_was_sent_twice_is_undone_although_its_first_message_failed(
    database: Database, again: str
) -> None:
    shop = Shop(database, careful_order)
    await shop.clear()
    shop.refuses, shop.restocks = {"o-1"}, True
    await shop.order("o-1")
    await shop.saga_works()
    await shop.publish()
    await shop.box.consumers["inventory"].drain()
    if again == "operator":
        saga_id, ops = (await shop.row()).saga_id, SagaOps(shop.database.engine, actor="jane")
        await ops.resume(saga_id, reason="nobody replies")
    else:
        await shop.time_passes()
    await shop.saga.drain()  # the reply is on its way meanwhile

    await shop.settle()

    assert shop.handled == [("reserve", "o-1"), ("reserve", "o-1"), ("release", "o-1")]
    assert await shop.outcomes() == {("reserve", "do"): "failed", ("reserve", "undo"): "ok"}
    assert await shop.statuses() == {"o-1": "REJECTED: reserve failed: OutOfStock"}
    assert shop.stock == set()


@HERE
async def test_a_reply_that_cannot_be_read_is_parked_and_the_saga_waits(shop: Shop) -> None:
    await shop.order("o-1")
    await shop.settle("saga-place-order")
    (command,) = shop.sent("ReserveInventory")
    headers = {**command.headers, "causationid": command.event_id}
    reply = command._replace(event_id=str(uuid4()), event_type="InventoryReserved", headers=headers)
    await shop.bus.publish([reply._replace(topic="shop.inventory", data=b'{"order_id": 7}')])

    await shop.settle("saga-place-order")

    parked = "SELECT reason || ': ' || error_message FROM inbox_parked"
    assert "handler-asked: InventoryReserved cannot be read" in await shop.database.scalar(parked)
    assert (await shop.row()).state == "RUNNING"


class ShopOpened(DomainEvent):
    aggregate_type = "opening"
    name: str


class PlaceFirstOrder(DomainEvent):
    aggregate_type = "order"
    event_type = "OrderCreated"
    order_id: str
    total: str


class OrderConfirmed(DomainEvent):
    aggregate_type = "confirmation"
    order_id: str


def two_sagas(box: Pillarbox, observer: SagaObserver | None = None) -> None:
    """A saga whose only step is another saga, which replies at its end without knowing it."""

    @box.saga
    class OpenShop(Saga, name="open-shop", starts_on=ShopOpened):
        first = step(send=lambda o: PlaceFirstOrder(o.name, "1"), ok=OrderConfirmed)

    class PlaceOrder(Saga, name="place-order", starts_on=OrderCreated):
        reserve = step(send=lambda o: ReserveInventory(o.order_id), ok=InventoryReserved)
        charge = step(
            send=lambda o, replies: Charge(replies["reserve"].shelf, o.total), ok=PaymentProcessed
        )

        async def completed(self, start: OrderCreated, ctx: Context) -> None:
            await ctx.outbox.add(OrderConfirmed(start.order_id))

    box.saga(PlaceOrder, config=QUICK, observer=observer)


@HERE
async def test_a_step_may_be_a_saga_of_its_own_and_later_steps_use_earlier_replies(
    database: Database,
) -> None:
    shop = Shop(database, two_sagas)
    await shop.clear()
    async with shop.box.unit_of_work() as uow:
        await uow.outbox.add(ShopOpened("main street"))
        await uow.commit()

    await shop.settle()

    assert {row.name: row.state for row in await shop.rows()} == {
        "open-shop": "COMPLETED",
        "place-order": "COMPLETED",
    }
    assert shop.handled == [("reserve", "main street"), ("charge", "A")]
    assert shop.heard.verdicts == [Verdict.TAKEN, Verdict.TAKEN]
    assert shop.heard.strangers == 0


@HERE
async def test_a_handler_that_fails_leaves_nothing_of_the_step_behind(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = iter([RuntimeError("the first time"), None])
    shop = Shop(database)
    await shop.clear()
    kind = shop.box.sagas.versions["place-order"][1].kind
    ended = kind.completed

    async def completed(self: Saga, start: OrderCreated, ctx: Context) -> None:
        await ended(self, start, ctx)
        if error := next(failures):
            raise error

    monkeypatch.setattr(kind, "completed", completed)
    await shop.order("o-1")

    await shop.settle()

    assert await shop.statuses() == {"o-1": "CONFIRMED"}
    assert shop.heard.stands == ["COMPLETED"]  # told once, after the commit
    assert next(failures, "none") == "none"


def shelved_order(box: Pillarbox, observer: SagaObserver | None = None) -> type[Saga]:
    """A saga whose undoing names the shelf, if the reply with it has come."""

    class ShelvedOrder(Saga, name="place-order", version=1, starts_on=OrderCreated):
        reserve = step(
            send=lambda o: ReserveInventory(o.order_id),
            ok=InventoryReserved,
            fail=OutOfStock,
            undo=lambda o, replies: ReleaseInventory(
                f"{o.order_id} on {replies['reserve'].shelf if 'reserve' in replies else 'any'}"
            ),
            timeout=timedelta(minutes=5),
            retries=1,
        )

        async def compensated(self, start: OrderCreated, ctx: Context, why: Why) -> None:
            await set_status(ctx.session, start.order_id, f"REJECTED: {why}")

    return box.saga(ShelvedOrder, config=QUICK, observer=observer)


@HERE
async def test_the_refusal_of_a_step_is_no_reply_that_its_undoing_is_given(
    database: Database,
) -> None:
    """It was handed in as the reply of a step that had worked, and the undoing failed over it."""
    shop = Shop(database, shelved_order)
    await shop.clear()
    shop.refuses = {"o-1"}
    await shop.order("o-1")
    await shop.saga_works()
    await shop.publish()
    await shop.box.consumers["inventory"].drain()
    await shop.time_passes()
    await shop.saga.drain()  # sent twice, so it is undone though it was refused

    await shop.settle()

    assert shop.heard.errors == []
    assert (await shop.row()).state == "COMPENSATED"
    (undoing,) = shop.sent("ReleaseInventory")
    assert json.loads(undoing.data or b"")["order_id"] == "o-1 on any"
