"""A model changes what it follows by a rebuild, and by nothing else."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import select

from pillarbox import Pillarbox
from pillarbox.errors import InvalidConfig, ReadModelSourceChanged, RebuildFailed
from pillarbox.readmodel.checkpoint import Checkpoints, Generation, Source
from pillarbox.readmodel.making import ReadModelRunner
from pillarbox.readmodel.rebuild import LogRebuild
from tests.readmodel.bank import QUICK, Bank, has, on_two, running
from tests.readmodel.rig import Account, Accounts, Deposited, Opened, Rig
from tests.support.waiting import LIMIT, until


@pytest.fixture
def bank(rig: Rig) -> Bank:
    return Bank(rig)


@pytest.fixture
def from_log(rig: Rig) -> ReadModelRunner:
    """The same model in an application that follows the outbox's log."""
    box = Pillarbox(rig.database.engine, service="bank", environ={})
    return box.read_model(Accounts, config=QUICK)


async def happen(rig: Rig, bank: Bank) -> None:
    """Let an account have a deposit, in the log and on the bus."""
    await rig.record(Opened("a", "ann"), Deposited("a", 5))
    bank.open("ann", 1)
    bank.deposit(5, 2)


@on_two
async def test_a_model_of_a_subscription_is_not_run_from_the_log(
    rig: Rig, bank: Bank, from_log: ReadModelRunner
) -> None:
    """It once applied the whole log to rows that had it already, and counted all of it twice."""
    await happen(rig, bank)
    await bank.model.drain()

    with pytest.raises(ReadModelSourceChanged, match="a subscription and not the outbox's") as told:
        await from_log.drain()

    assert (told.value.state, told.value.found, told.value.wanted) == ("live", "bus", "log")
    assert await bank.row() == ("ann", 5)


@on_two
async def test_a_model_of_the_log_is_not_run_from_a_subscription(
    rig: Rig, bank: Bank, from_log: ReadModelRunner
) -> None:
    await happen(rig, bank)
    await from_log.drain()

    for run in (bank.model.drain, bank.model.run_forever):
        with pytest.raises(ReadModelSourceChanged, match=r"rebuild\(\)"):
            await run()

    assert await bank.row() == ("ann", 5)


@on_two
async def test_a_rebuild_takes_a_model_from_a_subscription_to_the_log(
    rig: Rig, bank: Bank, from_log: ReadModelRunner
) -> None:
    await happen(rig, bank)
    await bank.model.drain()

    await from_log.rebuild()
    rebuilt = await bank.row()
    await rig.record(Deposited("a", 7))
    await from_log.drain()

    assert rebuilt == ("ann", 5)
    assert await bank.row() == ("ann", 12)
    with pytest.raises(ReadModelSourceChanged):
        await bank.model.drain()


@on_two
async def test_a_rebuild_takes_a_model_from_the_log_to_a_subscription(
    rig: Rig, bank: Bank, from_log: ReadModelRunner
) -> None:
    await happen(rig, bank)
    await from_log.drain()

    await bank.model.rebuild()
    rebuilt = await bank.row()
    bank.deposit(7, 3)
    await bank.model.drain()

    assert rebuilt == ("ann", 5)
    assert await bank.row() == ("ann", 12)
    with pytest.raises(ReadModelSourceChanged):
        await from_log.drain()


@on_two
async def test_a_subscription_ends_when_its_model_has_gone_to_the_log(
    rig: Rig, bank: Bank, from_log: ReadModelRunner
) -> None:
    await happen(rig, bank)

    with pytest.RaisesGroup(ReadModelSourceChanged):
        async with asyncio.timeout(60), running(bank.model):
            await until(lambda: has(bank, ("ann", 5)), "its messages are applied")
            await from_log.rebuild()
            bank.deposit(7, 3)
            await asyncio.Event().wait()  # until the model's end cancels it

    assert await bank.row() == ("ann", 5)


@on_two
async def test_a_rebuild_from_the_log_does_not_go_on_with_one_from_a_subscription(
    rig: Rig, bank: Bank, from_log: ReadModelRunner
) -> None:
    """It would fill the table from two accounts of the same events."""
    await happen(rig, bank)
    bank.send("Renamed", '{"account_id":"a"}', 3)
    await bank.model.drain()
    with pytest.raises(RebuildFailed):
        await bank.model.rebuild()

    with pytest.raises(ReadModelSourceChanged, match="is being built again from a subscription"):
        await from_log.rebuild()
    with pytest.raises(ReadModelSourceChanged):
        await from_log.abandon()

    assert await rig.count("readmodel") == 2


@on_two
async def test_a_rebuild_from_a_subscription_begins_when_the_one_from_the_log_is_given_up(
    rig: Rig, bank: Bank, from_log: ReadModelRunner
) -> None:
    await happen(rig, bank)
    await bank.model.drain()
    await LogRebuild(Accounts(), rig.parts()).begin()

    with pytest.raises(ReadModelSourceChanged, match="is being built again from the outbox's log"):
        await bank.model.rebuild()
    await from_log.abandon()
    await bank.model.rebuild()

    assert await bank.row() == ("ann", 5)


@on_two
async def test_a_rebuild_from_the_log_begins_when_the_one_from_a_subscription_is_given_up(
    rig: Rig, bank: Bank, from_log: ReadModelRunner
) -> None:
    """Such a rebuild was once not to be given up, whatever it had failed with."""
    await happen(rig, bank)
    bank.send("Renamed", '{"account_id":"a"}', 3)
    await bank.model.drain()
    with pytest.raises(RebuildFailed):
        await bank.model.rebuild()

    await bank.model.abandon()
    await from_log.rebuild()

    assert await bank.row() == ("ann", 5)
    assert await rig.count("readmodel") == 1


@on_two
async def test_a_model_of_a_subscription_does_not_begin_beside_a_first_rebuild_from_the_log(
    rig: Rig, bank: Bank
) -> None:
    """It once said for ever that the database was away."""
    await happen(rig, bank)
    await LogRebuild(Accounts(), rig.parts()).begin()

    for run in (bank.model.drain, bank.model.run_forever):
        with pytest.raises(ReadModelSourceChanged, match="built again from the outbox's log"):
            async with asyncio.timeout(LIMIT):
                await run()


@on_two
async def test_a_model_of_a_subscription_is_not_built_again_from_a_snapshot_query(
    rig: Rig, bank: Bank
) -> None:
    """No place at a broker is that of the query's snapshot."""
    await happen(rig, bank)
    await bank.model.drain()

    with pytest.raises(InvalidConfig, match="snapshot is for models that follow the log") as told:
        await bank.model.rebuild(snapshot=select(Account.tenant_id, Account.account_id))

    assert told.value.remedy == "rebuild from the broker's log"
    assert await bank.row() == ("ann", 5)
    assert await rig.count("readmodel") == 1


@on_two
async def test_a_model_that_begins_from_the_log_in_the_same_moment_is_not_run_from_a_subscription(
    rig: Rig, bank: Bank, from_log: ReadModelRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both once fed the first generation: whoever came second went on as if it were its own."""
    await happen(rig, bank)
    await from_log.drain()
    find = Checkpoints.find

    async def too_early(*asked: Any, **options: Any) -> Generation | None:
        monkeypatch.undo()
        assert await find(*asked, **options) is not None
        return None

    monkeypatch.setattr(Checkpoints, "find", too_early)

    with pytest.raises(ReadModelSourceChanged, match="the outbox's log and not a subscription"):
        await bank.model.drain()

    assert await bank.row() == ("ann", 5)


@on_two
@pytest.mark.parametrize(("source", "goes_on"), [("log", False), ("bus", True)])
async def test_messages_go_into_a_generation_of_a_subscription_alone(
    rig: Rig, source: Source, goes_on: bool
) -> None:
    async with rig.parts().transactions.begin(None) as session:
        begun = Generation(name="accounts", generation=1, source=source, state="live")
        await Checkpoints().begin(session, begun)

        found = await Checkpoints().goes_on(session, "accounts", 1, "live")

    assert found is goes_on
