"""What was done is undone, the last first: as a decision, and as a participant gets to hear of it."""

from datetime import timedelta

import pytest

from pillarbox import Context, DomainEvent, Pillarbox, Saga, step
from pillarbox.saga.machine import (
    Outcome,
    Part,
    Place,
    Plan,
    Progress,
    State,
    StepPlan,
    answered,
    begin,
    timed_out,
)
from pillarbox.saga.observer import SagaObserver
from tests.saga.shop import (
    QUICK,
    Charge,
    InventoryReleased,
    InventoryReserved,
    OrderCreated,
    PaymentProcessed,
    PaymentRefused,
    ReleaseInventory,
    ReserveInventory,
    Shop,
)
from tests.support.database import Database, on

UNDO_A, UNDO_B, UNDO_C = (Place(number, Part.UNDO) for number in range(3))


def at_c(plan: Plan) -> Progress:
    """Return how a saga stands whose steps a and b were done, and that waits for c."""
    progress = begin(plan).progress
    for number in range(2):
        progress = answered(plan, progress, Place(number, Part.DO), good=True, sent=1).progress
    return progress


def test_the_steps_before_one_that_failed_are_undone_in_reverse() -> None:
    plan = (StepPlan("a", undoes=True), StepPlan("b", undoes=True), StepPlan("c"))

    move = answered(plan, at_c(plan), Place(2, Part.DO), good=False, sent=1)

    assert move.sends == (UNDO_B, UNDO_A)
    assert move.progress.state is State.COMPENSATED
    assert move.progress.undone == (Outcome.SENT, Outcome.SENT, None)


def test_a_step_is_undone_only_when_the_undoing_of_the_one_after_it_has_its_reply() -> None:
    a, b = (StepPlan(name, undoes=True, awaits_undo=True) for name in "ab")
    plan = (a, b, StepPlan("c"))

    first = answered(plan, at_c(plan), Place(2, Part.DO), good=False, sent=1)
    second = answered(plan, first.progress, UNDO_B, good=True, sent=1)
    last = answered(plan, second.progress, UNDO_A, good=True, sent=1)

    assert [move.sends for move in (first, second, last)] == [(UNDO_B,), (UNDO_A,), ()]
    assert [move.progress.waits_for for move in (first, second, last)] == [UNDO_B, UNDO_A, None]
    assert last.progress.state is State.COMPENSATED
    assert last.progress.undone == (Outcome.OK, Outcome.OK, None)


def test_a_step_that_was_not_replied_to_in_time_is_undone_before_all_others() -> None:
    plan = tuple(StepPlan(name, undoes=True) for name in "abc")

    move = timed_out(plan, at_c(plan))

    assert move.sends == (UNDO_C, UNDO_B, UNDO_A)


class PackParcel(DomainEvent):
    aggregate_type = "inventory-command"
    order_id: str


class UnpackParcel(DomainEvent):
    aggregate_type = "inventory-command"
    order_id: str


class ParcelPacked(DomainEvent):
    aggregate_type = "inventory"
    order_id: str


class ParcelUnpacked(DomainEvent):
    aggregate_type = "inventory"
    order_id: str


def packing_shop(database: Database, *, awaited: bool) -> Shop:
    """A shop whose inventory does two steps, and undoes both."""

    def define(box: Pillarbox, observer: SagaObserver) -> None:
        class PackedOrder(Saga, name="place-order", version=1, starts_on=OrderCreated):
            reserve = step(
                send=lambda o: ReserveInventory(o.order_id),
                ok=InventoryReserved,
                undo=lambda o: ReleaseInventory(o.order_id),
                undone=InventoryReleased if awaited else None,
                timeout=timedelta(minutes=5),
            )
            pack = step(
                send=lambda o: PackParcel(o.order_id),
                ok=ParcelPacked,
                undo=lambda o: UnpackParcel(o.order_id),
                undone=ParcelUnpacked if awaited else None,
                timeout=timedelta(minutes=5),
            )
            charge = step(
                send=lambda o: Charge(o.order_id, o.total), ok=PaymentProcessed, fail=PaymentRefused
            )

        box.saga(PackedOrder, config=QUICK, observer=observer)

    shop = Shop(database, define)
    inventory = shop.box.consumers["inventory"]

    @inventory.on(PackParcel)
    async def pack(event: PackParcel, ctx: Context) -> None:
        shop.handled.append(("pack", event.order_id))
        await ctx.outbox.add(ParcelPacked(event.order_id))

    @inventory.on(UnpackParcel)
    async def unpack(event: UnpackParcel, ctx: Context) -> None:
        shop.handled.append(("unpack", event.order_id))
        await ctx.outbox.add(ParcelUnpacked(event.order_id))

    return shop


@on("postgres18+asyncpg", "postgres18+psycopg", "sqlite+aiosqlite")
@pytest.mark.parametrize("awaited", [False, True], ids=["sent", "awaited"])
async def test_a_participant_of_two_steps_hears_their_undoings_in_reverse(
    database: Database, awaited: bool
) -> None:
    shop = packing_shop(database, awaited=awaited)
    await shop.clear()
    shop.refuses.add("pay o-1")
    await shop.order("o-1")

    await shop.settle()

    assert [act for act, _ in shop.handled] == ["reserve", "pack", "charge", "unpack", "release"]
    undone = "ok" if awaited else "sent"
    assert await shop.outcomes() == {
        ("reserve", "do"): "ok",
        ("pack", "do"): "ok",
        ("charge", "do"): "failed",
        ("pack", "undo"): undone,
        ("reserve", "undo"): undone,
    }
    assert (await shop.row()).state == "COMPENSATED"
    assert shop.stock == set()
