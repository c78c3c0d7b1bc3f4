"""The switch of a rebuild as readers see it: all old rows or all new ones, and nobody waits."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import Connection, event, select, text

from pillarbox import Pillarbox
from pillarbox.readmodel.making import ReadModelRunner
from tests.readmodel.bank import QUICK, Bank, on_two
from tests.readmodel.rig import Account, Accounts, Deposited, Opened, Rig
from tests.readmodel.test_rebuild import spoil
from tests.support.database import on_postgres
from tests.support.waiting import LIMIT

OLD = {"a": 5, "ghost": 99}
NEW = {"a": 5}


@dataclass(frozen=True, slots=True)
class Case:
    """A model to be built again, and a way to have something happen to it."""

    model: ReadModelRunner
    deposit: Callable[[int, int], Awaitable[None]]


@pytest.fixture(params=["log", "subscription"])
async def case(rig: Rig, request: pytest.FixtureRequest) -> Case:
    """A model with a row of its events, and one that no event explains."""
    made = await _of_the_log(rig) if request.param == "log" else _of_a_subscription(rig)
    await made.model.drain()
    await spoil(rig)
    return made


async def _of_the_log(rig: Rig) -> Case:
    async def deposit(cents: int, version: int) -> None:
        del version
        await rig.record(Deposited("a", cents))

    await rig.record(Opened("a", "ann"), Deposited("a", 5))
    box = Pillarbox(rig.database.engine, service="bank", environ={})
    return Case(box.read_model(Accounts, config=QUICK), deposit)


def _of_a_subscription(rig: Rig) -> Case:
    bank = Bank(rig)

    async def deposit(cents: int, version: int) -> None:
        bank.deposit(cents, version)

    bank.open("ann", 1)
    bank.deposit(5, 2)
    return Case(bank.model, deposit)


# In the switch's transaction, old rows are deleted, new ones put in, and the generation is made live.
_ROWS = re.compile(r"INSERT INTO account .*FROM account_shadow", re.DOTALL)
_GENERATION = re.compile(r"UPDATE readmodel SET .*\bstate=")
MOMENTS = {
    "before the new rows": ("before_cursor_execute", _ROWS),
    "between rows and generation": ("before_cursor_execute", _GENERATION),
    "before the commit": ("after_cursor_execute", _GENERATION),
}


@contextmanager
def at(rig: Rig, moment: str, act: Callable[[], None]) -> Iterator[None]:
    """Act at a moment of the switch."""
    name, pattern = MOMENTS[moment]

    def listen(_connection: object, _cursor: object, statement: str, *_: Any) -> None:
        if pattern.match(statement):
            act()

    engine = rig.database.engine.sync_engine
    event.listen(engine, name, listen)
    try:
        yield
    finally:
        event.remove(engine, name, listen)


def cents(reader: Connection) -> dict[str, int]:
    rows = reader.execute(select(Account.account_id, Account.cents))
    return {row.account_id: row.cents for row in rows}


def read_beside(rig: Rig) -> dict[str, int]:
    """Read the model over a connection of its own, and fail if that has to wait."""
    with rig.database.sync_engine() as engine, engine.connect() as reader:
        if rig.database.is_postgres:
            reader.execute(text("SET LOCAL lock_timeout = '2s'"))
        return cents(reader)


async def generations(rig: Rig) -> dict[str, int]:
    async with rig.database.engine.connect() as connection:
        rows = await connection.execute(text("SELECT state, generation FROM readmodel"))
        return {row.state: row.generation for row in rows}


@on_two
async def test_readers_see_all_old_rows_without_waiting_while_they_are_replaced(
    rig: Rig, case: Case
) -> None:
    seen: list[dict[str, int]] = []

    def look() -> None:
        seen.append(read_beside(rig))

    with ExitStack() as looks:
        for moment in MOMENTS:
            looks.enter_context(at(rig, moment, look))
        await case.model.rebuild()

    assert seen == [OLD] * 3
    assert read_beside(rig) == NEW


@on_postgres
async def test_the_switch_waits_for_no_reader_who_goes_on_in_the_snapshot_that_he_has(
    rig: Rig, case: Case
) -> None:
    """Renaming the tables, or TRUNCATE, would wait for him."""
    async with rig.database.engine.connect() as reader:
        await reader.execution_options(isolation_level="REPEATABLE READ")
        before = await reader.run_sync(cents)
        async with asyncio.timeout(LIMIT):
            await case.model.rebuild()
        after = await reader.run_sync(cents)

    assert before == after == OLD
    assert await rig.cents() == NEW


class Cut(Exception):
    """The switch is cut off."""


@on_two
@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_switch_that_is_cut_off_changes_nothing_and_the_next_rebuild_ends_it(
    rig: Rig, case: Case, moment: str
) -> None:
    def cut_off() -> None:
        raise Cut

    with at(rig, moment, cut_off), pytest.raises(Cut):
        await case.model.rebuild()
    left, between = await rig.cents(), await generations(rig)
    await case.deposit(7, 3)
    await case.model.drain()
    gone_on = await rig.cents()
    await case.model.rebuild()

    assert (left, between) == (OLD, {"live": 1, "filling": 2})
    assert gone_on == {**OLD, "a": 12}
    assert await rig.cents() == {"a": 12}
    assert await generations(rig) == {"live": 2}
