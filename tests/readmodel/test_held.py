"""An event that fails holds its key, and nobody else."""

import asyncio
from contextlib import suppress

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as NoFreeConnection

from pillarbox.consumer.transactions import DatabaseAway
from pillarbox.errors import RebuildFailed
from pillarbox.readmodel.changes import Change, Increment
from pillarbox.readmodel.definition import ModelSession, ReadModel
from pillarbox.readmodel.definition import on as on_event
from pillarbox.readmodel.observer import Observer
from pillarbox.readmodel.rebuild import LogRebuild
from pillarbox.readmodel.runner import LogFollower
from tests.readmodel.bank import on_two
from tests.readmodel.rig import Account, Accounts, Deposited, Opened, Rig
from tests.support.database import on, on_postgres
from tests.support.waiting import until


class Heard(Observer):
    def __init__(self) -> None:
        self.steps: list[tuple[str, str, str]] = []

    def held(self, tenant_id: str, key: str, error_class: str) -> None:
        del tenant_id
        self.steps.append(("held", key, error_class))

    def released(self, tenant_id: str, key: str) -> None:
        self.steps.append(("released", tenant_id, key))


async def test_a_bad_event_holds_its_key_and_others_go_on(rig: Rig) -> None:
    model = Accounts()
    model.broken = True
    await rig.record(Deposited("b", 1), Opened("a", "ann"), Deposited("a", 5), Deposited("b", 2))

    await rig.runner(model, retry_delay=60).drain()
    await rig.record(Deposited("a", 7), Deposited("b", 4))
    await rig.runner(model, retry_delay=60).drain()

    assert await rig.cents() == {"b": 7}
    assert await rig.count("readmodel_held") == 1


async def test_a_held_key_catches_up_in_order_when_its_event_works(rig: Rig) -> None:
    model, heard = Accounts(), Heard()
    model.broken = True
    await rig.record(Opened("a", "ann"), Deposited("a", 5))
    runner = rig.runner(model, observer=heard)
    await runner.drain()
    await rig.record(Deposited("a", 7))
    await runner.drain()
    model.broken = False

    await runner.drain()

    assert await rig.cents() == {"a": 12}
    assert (await rig.rows())["default", "a"]["status"] == "OPEN"
    assert await rig.count("readmodel_held") == 0
    assert heard.steps[0] == ("held", "a", "Poison")
    assert heard.steps[-1] == ("released", "default", "a")


async def test_what_a_held_key_applied_before_its_next_failure_stays_applied(rig: Rig) -> None:
    """A second bad event behind the first once took the good ones between them with it."""
    model = Accounts()
    model.broken = True
    await rig.record(Opened("a", "ann"), Deposited("a", 5))
    await rig.record_raw("Opened", {"account_id": "a"}, key="a")
    await rig.record(Deposited("a", 7))
    await rig.runner(model).drain()
    model.broken = False

    async def is_held_further_on() -> bool:
        await rig.runner(model, retry_delay=60).drain()
        return bool((await rig.held())["seq"] == 3)

    await until(is_held_further_on, "the key is held by its second bad event")

    assert await rig.cents() == {"a": 5}
    held = await rig.held()
    assert (held["error_class"], held["attempts"]) == ("UnreadableEvent", 1)


@on_postgres
async def test_a_held_key_leaves_a_late_commit_to_the_batch_that_reads_its_gap(rig: Rig) -> None:
    """It was once applied with the held key, and again through the gap."""
    model = Accounts()
    model.broken = True
    follower = LogFollower(model, rig.parts())
    await follower.turn()
    await rig.record(Opened("a", "ann"))
    async with rig.slow_transaction(Deposited("a", 5)) as slow:
        await rig.record(Deposited("b", 1))
        await follower.turn()
        model.broken = False
        await slow.commit()

    async def is_released() -> bool:
        await follower.release_due()
        return await rig.count("readmodel_held") == 0

    await until(is_released, "the key is due and released")
    await follower.turn()

    assert await rig.cents() == {"a": 5, "b": 1}


async def test_the_reason_stands_with_the_held_key(rig: Rig) -> None:
    model = Accounts()
    model.broken = True
    (event_id,) = await rig.record(Opened("a", "ann"), tenant_id="acme")

    await rig.runner(model, retry_delay=60).drain()

    row = await rig.held()
    assert (row["tenant_id"], row["key"], row["seq"]) == ("acme", "a", 1)
    assert str(row["event_id"]) == event_id
    assert (row["error_class"], row["error_message"], row["attempts"]) == ("Poison", "a", 1)


async def test_an_event_that_its_method_cannot_take_is_held(rig: Rig) -> None:
    await rig.record_raw("Opened", {"account_id": "a"}, key="a")
    await rig.record(Deposited("b", 1))

    await rig.runner(retry_delay=60).drain()

    assert (await rig.held())["error_class"] == "UnreadableEvent"
    assert await rig.cents() == {"b": 1}


@on_postgres
async def test_a_write_that_the_database_refuses_is_held(rig: Rig) -> None:
    await rig.record(Opened("a", "a" * 65), Deposited("b", 1))

    await rig.runner(retry_delay=60).drain()

    assert (await rig.held())["key"] == "a"
    assert await rig.cents() == {"b": 1}


AWAY_FOR_THE_METHOD = {
    "a service": ConnectionRefusedError("refused"),
    "slow": TimeoutError("too slow"),
    "another database": OperationalError("SELECT 1", {}, Exception("connection refused")),
    "its own pool": NoFreeConnection("no connection is free"),
}


class Deposits(ReadModel):
    @on_event(Deposited)
    def deposited(self, event: Deposited) -> Change:
        return Increment(event.account_id, cents=event.cents)


class Remote(Deposits, name="accounts", table=Account):
    def __init__(self, error: Exception) -> None:
        self.error = error

    @on_event(Opened)
    async def opened(self, event: Opened) -> None:
        del event
        raise self.error


@on("postgres18+asyncpg", "postgres18+psycopg", "sqlite+aiosqlite")
@pytest.mark.parametrize("away", AWAY_FOR_THE_METHOD)
async def test_a_method_for_which_something_else_is_away_holds_its_key_alone(
    rig: Rig, away: str
) -> None:
    """It once passed for the database: nothing was held, and the model stood still for all tenants."""
    error = AWAY_FOR_THE_METHOD[away]
    await rig.record(Opened("a", "ann"), Deposited("b", 1))
    runner = rig.runner(Remote(error))

    await runner.drain()
    await runner.drain()

    assert await rig.cents() == {"b": 1}
    assert (await rig.held())["error_class"] == type(error).__name__


@on_two
async def test_a_rebuild_names_the_event_whose_method_takes_too_long(rig: Rig) -> None:
    await rig.record(Deposited("b", 1), Opened("a", "ann"))

    with pytest.raises(RebuildFailed, match="at position 2 failed with TimeoutError"):
        await LogRebuild(Remote(TimeoutError()), rig.parts()).run()


class Cancels(Deposits, name="accounts", table=Account):
    @on_event(Opened)
    async def opened(self, event: Opened) -> None:
        del event
        task = asyncio.ensure_future(asyncio.Event().wait())
        task.cancel()
        await task


@on_two
async def test_a_method_that_cancels_itself_holds_its_key_and_the_model_goes_on(rig: Rig) -> None:
    """It once ended the model without a word, as if that had been asked for."""
    await rig.record(Opened("a", "ann"), Deposited("b", 1))
    runner = rig.runner(Cancels(), retry_delay=60)

    async def is_applied() -> bool:
        return await rig.cents() == {"b": 1}

    running = asyncio.ensure_future(runner.run_forever())
    await until(is_applied, "the other key's event is applied")
    runner.stop()
    await running

    assert not running.cancelled()
    assert (await rig.held())["error_class"] == "CancelledByItself"


class LosesOnce(Deposits, name="accounts", table=Account):
    lost = False

    @on_event(Opened)
    async def opened(self, event: Opened, model: ModelSession) -> None:
        del event
        if self.lost:
            return
        self.lost = True
        with suppress(DBAPIError):
            await model.session.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
        raise RuntimeError("the statement before failed")


@on_postgres
async def test_a_method_whose_connection_is_lost_holds_no_key(rig: Rig) -> None:
    await rig.record(Opened("a", "ann"), Deposited("b", 1))
    runner = rig.runner(LosesOnce())

    with pytest.raises(DatabaseAway):
        await runner.drain()
    await runner.drain()

    assert await rig.cents() == {"b": 1}
    assert await rig.count("readmodel_held") == 0
