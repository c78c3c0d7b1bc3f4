"""A definition changes while sagas run: versions stand side by side, and a missing one is told."""

from collections.abc import Callable
from datetime import timedelta

from pillarbox import MemoryMessageBus, Pillarbox, Saga, step
from pillarbox.ops import ParkedOps, SagaOps
from pillarbox.saga.observer import SagaObserver
from tests.saga.shop import (
    QUICK,
    Charge,
    InventoryReserved,
    OrderCreated,
    PaymentProcessed,
    ReserveInventory,
    Shop,
)
from tests.support.database import Database, on

TOPICS = ["shop.order", "shop.payment", "shop.inventory"]
HERE = on("postgres18+psycopg", "sqlite+aiosqlite")


class First(Saga, name="place-order", version=1, starts_on=OrderCreated, topics=TOPICS):
    reserve = step(
        send=lambda o: ReserveInventory(o.order_id),
        ok=InventoryReserved,
        timeout=timedelta(minutes=1),
    )


class Second(Saga, name="place-order", version=2, starts_on=OrderCreated, topics=TOPICS):
    charge = step(send=lambda o: Charge(o.order_id, o.total), ok=PaymentProcessed)


class Changed(Saga, name="place-order", version=1, starts_on=OrderCreated):
    reserve = step(send=lambda o: ReserveInventory(o.order_id), ok=InventoryReserved)
    charge = step(send=lambda o: Charge(o.order_id, o.total), ok=PaymentProcessed)


def with_versions(*kinds: type[Saga]) -> Callable[[Pillarbox, SagaObserver], None]:
    def define(box: Pillarbox, observer: SagaObserver) -> None:
        box.saga(kinds[0], config=QUICK, observer=observer)
        for kind in kinds[1:]:
            box.saga(kind)

    return define


async def started_with_first(database: Database) -> MemoryMessageBus:
    shop = Shop(database, with_versions(First))
    await shop.clear()
    await shop.order("o-1")
    await shop.saga_works()
    await shop.publish()
    return shop.bus


@HERE
async def test_a_saga_goes_on_with_the_version_that_it_started_with(database: Database) -> None:
    bus = await started_with_first(database)
    shop = Shop(database, with_versions(First, Second), bus)
    await shop.order("o-2")

    await shop.settle()

    assert [(row.version, row.state) for row in await shop.rows()] == [
        (1, "COMPLETED"),
        (2, "COMPLETED"),
    ]
    assert shop.handled == [("reserve", "o-1"), ("charge", "o-2")]


@HERE
async def test_a_version_that_is_missing_is_told_and_the_saga_waits_for_it(
    database: Database,
) -> None:
    bus = await started_with_first(database)
    shop = Shop(database, with_versions(Second), bus)

    await shop.settle()  # the reply comes to a process without version 1
    await shop.time_passes()
    await shop.saga_works()  # and so does the timer

    row = await shop.row()
    assert (row.state, row.error_class, row.failures) == ("RUNNING", "SagaVersionMissing", 0)
    assert "was started with version 1, and this process has 2" in row.error_message
    (parked,) = await ParkedOps(database.engine, actor="jane").messages()
    assert parked.error_class == "SagaVersionMissing"
    back = Shop(database, with_versions(First, Second), bus)
    await ParkedOps(database.engine, actor="jane").redrive(parked.parked_id, reason="it is back")
    await back.settle()
    assert (await back.row()).state == "COMPLETED"


@HERE
async def test_a_saga_whose_version_is_gone_for_good_can_be_cancelled(database: Database) -> None:
    await started_with_first(database)
    shop = Shop(database, with_versions(Second))
    row = await shop.row()
    await SagaOps(database.engine, actor="jane").cancel(row.saga_id, reason="version 1 is gone")

    await shop.saga_works()

    assert (await shop.row()).state == "CANCELLED"


@HERE
async def test_a_definition_that_was_changed_in_place_is_noticed(database: Database) -> None:
    await started_with_first(database)
    shop = Shop(database, with_versions(Changed))
    await shop.time_passes()

    await shop.saga_works()

    row = await shop.row()
    assert (row.state, row.error_class) == ("RUNNING", "SagaChanged")
    assert (
        "started with the steps reserve, and is defined with reserve, charge" in row.error_message
    )
