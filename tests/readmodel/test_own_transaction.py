"""A method that works on the session spoils its own event alone, whatever it does to the transaction."""

from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from sqlalchemy import text, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox.errors import RebuildFailed, UnitOfWorkError
from pillarbox.readmodel.changes import Change, Increment
from pillarbox.readmodel.definition import ModelSession, ReadModel
from pillarbox.readmodel.definition import on as on_event
from pillarbox.readmodel.rebuild import LogRebuild
from tests.readmodel.rig import Account, Deposited, Opened, Renamed, Rig
from tests.support.database import on, on_postgres
from tests.support.waiting import until

on_three = on("postgres18+asyncpg", "postgres18+psycopg", "sqlite+aiosqlite")
End = Callable[[AsyncSession], Awaitable[object]]


async def commit_in_silence(session: AsyncSession) -> None:
    with suppress(UnitOfWorkError):
        await session.commit()


async def leave_open(session: AsyncSession) -> None:
    await session.begin_nested()


ENDS: dict[str, End] = {
    "a commit": AsyncSession.commit,
    "a rollback": AsyncSession.rollback,
    "a close": AsyncSession.close,
    "a savepoint that is left open": leave_open,
}
# In a batch as a whole a commit is refused, and nothing has happened.
IN_A_SAVEPOINT = {**ENDS, "a commit whose refusal is passed over": commit_in_silence}


class Deposits(ReadModel):
    @on_event(Deposited)
    def deposited(self, event: Deposited) -> Change:
        return Increment(event.account_id, cents=event.cents)


class Ends(Deposits, name="accounts", table=Account):
    """A deposit for everybody, and then the end of what is not the method's own."""

    def __init__(self, end: End) -> None:
        self.end = end

    @on_event(Opened)
    async def opened(self, event: Opened, model: ModelSession) -> None:
        del event
        cents = model.table.c.cents + 100
        await model.session.execute(update(model.table).values(cents=cents))
        await self.end(model.session)


async def is_tried(rig: Rig, attempts: int) -> bool:
    return bool((await rig.held())["attempts"] >= attempts)


@on_three
@pytest.mark.parametrize("end", ENDS)
async def test_a_method_that_ends_the_transaction_holds_its_key_and_nothing_of_it_stays(
    rig: Rig, end: str
) -> None:
    """After a commit its effects stayed at each try; after a rollback the model ended for all tenants."""
    await rig.record(Deposited("b", 1), Opened("a", "ann"), Deposited("a", 2), Deposited("c", 3))
    runner = rig.runner(Ends(ENDS[end]))

    async def is_tried_again() -> bool:
        await runner.drain()
        return await is_tried(rig, 3)

    await until(is_tried_again, "the held event has been tried three times")

    assert await rig.cents() == {"b": 1, "c": 3}
    held = await rig.held()
    assert (held["key"], held["error_class"]) == ("a", "UnitOfWorkError")
    assert "leave commit and rollback of" in held["error_message"] or end == "a commit"


@on_three
@pytest.mark.parametrize("end", IN_A_SAVEPOINT)
async def test_a_rebuild_names_the_event_whose_method_ends_the_transaction(
    rig: Rig, end: str
) -> None:
    ids = await rig.record(Deposited("b", 1), Opened("a", "ann"), Deposited("c", 3))

    with pytest.raises(RebuildFailed, match="failed with UnitOfWorkError") as failed:
        await LogRebuild(Ends(IN_A_SAVEPOINT[end]), rig.parts()).run()

    assert (failed.value.event_id, failed.value.position) == (ids[1], 2)


class Swallows(Deposits, name="accounts", table=Account):
    @on_event(Opened)
    async def opened(self, event: Opened, model: ModelSession) -> None:
        del event
        with suppress(DBAPIError):
            await model.session.execute(text("SELECT 1 / 0"))

    @on_event(Renamed)
    async def renamed(self, event: Renamed, model: ModelSession) -> None:
        del event
        await model.session.execute(text("SELECT 1"))


BEHIND = {
    "nothing": (),
    "a change": (Deposited("b", 1),),
    "a method with the session": (Renamed("b", "bob"),),
    "both": (Deposited("b", 1), Renamed("b", "bob")),
}


@on_postgres
@pytest.mark.parametrize("behind", BEHIND)
async def test_a_rebuild_names_the_event_whose_method_passed_over_a_statement_that_failed(
    rig: Rig, behind: str
) -> None:
    """It named the next event, or raised the database's own error: the transaction was aborted."""
    ids = await rig.record(Deposited("c", 1), Opened("a", "ann"), *BEHIND[behind])

    with pytest.raises(RebuildFailed, match="StatementFailed: a statement of it") as failed:
        await LogRebuild(Swallows(), rig.parts()).run()

    assert (failed.value.event_id, failed.value.position) == (ids[1], 2)


@on_postgres
async def test_a_method_that_passed_over_a_statement_that_failed_holds_its_key_alone(
    rig: Rig,
) -> None:
    """It ended the model for all tenants: a savepoint that is not released is not rolled back either."""
    await rig.record(Opened("a", "ann"), Deposited("b", 1), Renamed("c", "cid"))

    await rig.runner(Swallows(), retry_delay=60).drain()

    held = await rig.held()
    assert (held["key"], held["error_class"]) == ("a", "StatementFailed")
    assert await rig.cents() == {"b": 1}
