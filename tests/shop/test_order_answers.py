"""What the order service makes of the answers of others, with the fixture of the pytest plugin."""

import importlib
from collections.abc import Iterator, Mapping
from datetime import timedelta
from decimal import Decimal

import pytest

from examples.demo.databases import Database
from examples.shop.order_service.app.commands import CreateOrder, OrderCommandHandler
from examples.shop.order_service.app.domain import Order
from examples.shop.order_service.app.events import Item
from pillarbox import Pillarbox, correlation, tenant
from pillarbox.testing import BoxUnderTest
from pillarbox.testing.fixture.faults import CrashPoint

SERVICE = "examples.shop.order_service.app"
PAYMENTS = "payments.payment"

pytestmark = pytest.mark.pillarbox(consumers=["order-answers"])
led_by_the_saga = pytest.mark.pillarbox(consumers=["saga-place-order"])


@pytest.fixture(scope="module")
def pillarbox_app(shop_databases: Mapping[str, Database]) -> Pillarbox:
    """The service's own box; its modules read the database's address when they are imported."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATABASE_URL", shop_databases["orders"].owner)
        box: Pillarbox = importlib.import_module(f"{SERVICE}.consumer").box
        importlib.import_module(f"{SERVICE}.saga")
    return box


@pytest.fixture(autouse=True)
def acme() -> Iterator[None]:
    with tenant("acme"):
        yield


async def order_of(pillarbox: BoxUnderTest) -> Order:
    async with pillarbox.box.unit_of_work() as uow:
        command = CreateOrder("ada", [Item("p-1", 2)], Decimal("19.80"))
        return await OrderCommandHandler(uow).create(command)


async def answer(pillarbox: BoxUnderTest, order: Order, kind: str, **fields: str) -> None:
    payload = {"order_id": order.id, **fields}
    await pillarbox.outbox.add(event_type=kind, topic=PAYMENTS, key=order.id, payload=payload)


async def reply(pillarbox: BoxUnderTest, order: Order, command: str, kind: str) -> None:
    """Do what the participant does that a command has reached."""
    asked = pillarbox.assert_recorded(command, key=order.id)
    with correlation(asked.metadata["correlationid"], causation_id=str(asked.event_id)):
        await answer(pillarbox, order, kind)
    await pillarbox.deliver()


def recorded(pillarbox: BoxUnderTest, order: Order) -> list[str]:
    return [event.event_type for event in pillarbox.outbox.events if event.key == order.id]


async def test_an_order_is_recorded_with_its_event(pillarbox: BoxUnderTest) -> None:
    order = await order_of(pillarbox)

    found = pillarbox.assert_recorded("OrderCreated", key=order.id)
    assert (found.topic, found.tenant_id) == ("orders.order", "acme")
    pillarbox.assert_not_recorded("OrderConfirmed")


async def test_a_payment_that_comes_three_times_confirms_once(pillarbox: BoxUnderTest) -> None:
    order = await order_of(pillarbox)
    await answer(pillarbox, order, "PaymentProcessed")

    await pillarbox.deliver(duplicates=2)

    assert recorded(pillarbox, order) == ["OrderCreated", "PaymentProcessed", "OrderConfirmed"]


@pytest.mark.parametrize("point", ["publish", "handle", "commit"])
async def test_a_process_that_ends_at_any_point_rejects_once(
    pillarbox: BoxUnderTest, point: CrashPoint
) -> None:
    order = await order_of(pillarbox)
    await answer(pillarbox, order, "PaymentRefused", reason="no money")

    pillarbox.crash_after(point)
    await pillarbox.deliver()

    pillarbox.assert_recorded("OrderRejected", key=order.id)
    assert recorded(pillarbox, order) == ["OrderCreated", "PaymentRefused", "OrderRejected"]


@led_by_the_saga
async def test_a_payment_service_that_is_away_for_long_does_not_get_an_order_rejected(
    pillarbox: BoxUnderTest,
) -> None:
    order = await order_of(pillarbox)
    await pillarbox.deliver()
    await reply(pillarbox, order, "ReserveInventory", "InventoryReserved")

    await pillarbox.clock.advance(timedelta(days=1))
    await pillarbox.deliver()
    await reply(pillarbox, order, "Charge", "PaymentProcessed")

    pillarbox.assert_recorded("OrderConfirmed", key=order.id)
    pillarbox.assert_not_recorded("ReleaseInventory")
