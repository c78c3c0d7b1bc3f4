"""A model follows a subscription: the consumer's runtime and its inbox, with rows behind them."""

from collections.abc import Sequence

import pytest

from pillarbox import Pillarbox
from pillarbox.bus.memory import MemoryMessageBus
from pillarbox.bus.memory_subscription import MemorySubscription
from pillarbox.bus.subscription import Revoked, SubscriptionRequest
from pillarbox.event.incoming import Incoming
from pillarbox.ops import ReadModelOps
from tests.readmodel.bank import QUICK, TOPIC, Bank, has, on_two, running
from tests.readmodel.rig import AccountTotal, Owners, Rig
from tests.readmodel.test_subscription_rebuild import Odd
from tests.support.waiting import until


@pytest.fixture
def bank(rig: Rig) -> Bank:
    return Bank(rig)


async def test_messages_become_rows(bank: Bank) -> None:
    bank.open("ann", 1)
    bank.deposit(5, 2)
    bank.deposit(7, 3)

    await bank.model.drain()

    assert await bank.row() == ("ann", 12)


async def test_a_message_that_comes_twice_is_added_once(bank: Bank) -> None:
    bank.deposit(5, 1)
    bank.deposit(5, 1)
    await bank.model.drain()

    bank.deposit(5, 1)
    await bank.model.drain()

    assert await bank.row() == (None, 5)


@on_two
async def test_an_older_event_never_overwrites_newer_state(bank: Bank) -> None:
    bank.open("ann", 1)
    bank.rename("anna", 3)
    bank.rename("anne", 2)

    await bank.model.drain()

    assert await bank.row() == ("anna", 0)


@on_two
async def test_an_older_event_does_not_bring_a_deleted_row_back(bank: Bank) -> None:
    bank.close(3)
    bank.open("ann", 1)
    bank.deposit(5, 2)

    await bank.model.drain()

    assert await bank.row() is None


@on_two
async def test_an_increment_that_comes_late_still_counts(bank: Bank) -> None:
    bank.open("ann", 1)
    bank.deposit(5, 3)
    bank.deposit(7, 2)

    await bank.model.drain()

    assert await bank.row() == ("ann", 12)


@on_two
async def test_rows_that_are_fed_by_many_aggregates_lose_nothing_side_by_side(rig: Rig) -> None:
    """Two lanes that create the same row: the second adds to what the first has written."""
    bus = MemoryMessageBus()
    box = Pillarbox(rig.database.engine, bus, service="bank", environ={})
    owners = box.read_model(Owners, topics=[TOPIC], config=QUICK)
    for number in range(60):
        body = f'{{"account_id":"a{number}","owner":"ann"}}'.encode()
        told = {"event_id": f"m{number}", "event_type": "Opened"}
        bus.put(Incoming(TOPIC, f"a{number}", told, body, "application/json"))

    await owners.drain()

    table = AccountTotal.__table__
    assert table is Owners.table
    rows = await rig.rows(Owners.table)
    assert rows["default", "ann"]["accounts"] == 60


@on_two
async def test_rows_that_are_fed_by_many_aggregates_count_an_event_that_comes_again_once(
    rig: Rig,
) -> None:
    """Their versions do not compare: the event's id alone tells that it was there before."""
    bus = MemoryMessageBus()
    box = Pillarbox(rig.database.engine, bus, service="bank", environ={})
    owners = box.read_model(Owners, topics=[TOPIC], config=QUICK)
    for number in range(5):
        body = f'{{"account_id":"a{number}","owner":"ann"}}'.encode()
        told = {
            "event_id": f"m{number}", "event_type": "Opened", "aggregate_type": "account",
            "aggregate_id": f"a{number}", "aggregate_version": "1", "event_number": "1",
        }  # fmt: skip
        bus.put(Incoming(TOPIC, f"a{number}", told, body, "application/json"))
    await owners.drain()
    before = await rig.rows(Owners.table)

    bus.redeliver()
    waiting = await waiting_for(bus, "owners")
    await owners.drain()

    assert before["default", "ann"]["accounts"] == waiting == 5
    assert await rig.rows(Owners.table) == before
    assert await waiting_for(bus, "owners") == 0


async def waiting_for(bus: MemoryMessageBus, consumer: str) -> int:
    """Count what the bus has for a consumer."""
    return await bus.subscribe(SubscriptionRequest(consumer, (TOPIC,))).lag()


@on_two
async def test_a_paused_model_stands_still_and_goes_on(bank: Bank, rig: Rig) -> None:
    ops = ReadModelOps(rig.database.engine, actor="jane")
    bank.open("ann", 1)
    async with running(bank.model):
        await until(lambda: has(bank, ("ann", 0)), "the first message is applied")
        await ops.pause("accounts", reason="a test")
        bank.deposit(5, 2)
        before = await bank.row()
        await ops.resume("accounts", reason="it is over")
        await until(lambda: has(bank, ("ann", 5)), "the second message is applied")

    assert before == ("ann", 0)
    assert await rig.count("inbox_parked") == 0


@on_two
async def test_a_message_that_meets_a_pause_is_given_back_and_no_attempt_is_counted(
    rig: Rig,
) -> None:
    """It once counted as a failure, and with the last attempt the message was parked."""
    bus = Odd()
    bank = Bank(rig, bus, environ={"PILLARBOX_CONSUMER_MAX_ATTEMPTS": "1"})
    ops = ReadModelOps(rig.database.engine, actor="jane")
    bank.open("ann", 1)
    await bank.model.drain()

    class Paused(MemorySubscription):
        async def start(self, revoked: Revoked) -> Sequence[str]:
            await ops.pause("accounts", reason="a test")
            return await super().start(revoked)

    bus.member = Paused
    bank.deposit(5, 2)
    await bank.model.drain()
    before, parked = await bank.row(), await rig.count("inbox_parked")
    bus.member = MemorySubscription
    await ops.resume("accounts", reason="it is over")
    await bank.model.drain()

    assert (before, parked) == (("ann", 0), 0)
    assert await bank.row() == ("ann", 5)
    assert await rig.count("inbox_attempt") == 0
