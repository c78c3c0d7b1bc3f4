"""What is away for a method is its own failure, unless it is the connection of its transaction."""

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox.readmodel.changes import Change, Increment, Upsert
from pillarbox.readmodel.definition import ModelSession, ReadModel
from pillarbox.readmodel.definition import on as on_event
from tests.readmodel.rig import Account, Deposited, Opened, Rig
from tests.support.database import on
from tests.support.no_room import run_out_of_room

on_three = on("postgres18+asyncpg", "postgres18+psycopg", "sqlite+aiosqlite")

Act = Callable[[AsyncSession], Awaitable[None]]


class Acts(ReadModel, name="accounts", table=Account):
    def __init__(self, act: Act) -> None:
        self.act = act

    @on_event(Opened)
    async def opened(self, event: Opened, model: ModelSession) -> Change:
        await self.act(model.session)
        return Upsert(event.account_id, owner=event.owner)

    @on_event(Deposited)
    def deposited(self, event: Deposited) -> Change:
        return Increment(event.account_id, cents=event.cents)


AWAY_ELSEWHERE: dict[str, dict[str, str]] = {
    "too many connections": {"sqlstate": "53300"},
    "read-only": {"sqlstate": "25006"},
    "a conflict": {"sqlstate": "40001"},
    "a locked file": {"sqlite_errorname": "SQLITE_BUSY"},
}


@on_three
@pytest.mark.parametrize("why", AWAY_ELSEWHERE)
async def test_a_method_for_which_another_database_is_away_holds_its_key_alone(
    rig: Rig, why: str
) -> None:
    """It passed for the model's own database by its code, and the model stood still for all."""
    original: Any = SimpleNamespace(**AWAY_ELSEWHERE[why])

    async def act(session: AsyncSession) -> None:
        del session
        raise OperationalError("SELECT 1", {}, original)

    await rig.record(Opened("a", "ann"), Deposited("b", 1))

    await rig.runner(Acts(act), retry_delay=60).drain()

    assert await rig.cents() == {"b": 1}
    assert (await rig.held())["key"] == "a"


@on("sqlite+aiosqlite")
async def test_a_method_for_which_sqlite_undoes_the_transaction_holds_its_key_alone(
    rig: Rig,
) -> None:
    """What was applied before it in its transaction went, and the model's position passed it."""
    await rig.record(Deposited("b", 1), Opened("a", "ann"), Deposited("c", 2))

    await rig.runner(Acts(run_out_of_room), retry_delay=60).drain()

    assert await rig.cents() == {"b": 1, "c": 2}
    assert (await rig.held())["key"] == "a"
