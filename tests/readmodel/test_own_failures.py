"""What a method brings upon itself holds its key: it never passes for a database that went away."""

from contextlib import suppress
from typing import Any

import pytest

from pillarbox.errors import RebuildFailed
from pillarbox.readmodel.changes import Change, Increment, Upsert
from pillarbox.readmodel.definition import ModelSession, ReadModel
from pillarbox.readmodel.definition import on as on_event
from pillarbox.readmodel.rebuild import LogRebuild
from pillarbox.schema.tables import readmodel_held
from tests.readmodel.rig import Account, Deposited, Opened, Renamed, Rig
from tests.support.database import on
from tests.support.giving_up import give_up
from tests.support.waiting import until

on_three = on("postgres18+asyncpg", "postgres18+psycopg", "sqlite+aiosqlite")
on_drivers = on("postgres18+asyncpg", "postgres18+psycopg")

UNBOUND: dict[str, object] = {"a mapping": {"x": 1}, "an object": object(), "a NUL": "a\0b"}


class Odd(ReadModel, name="accounts", table=Account):
    def __init__(self, owner: object) -> None:
        self.owner: Any = owner

    @on_event(Opened)
    def opened(self, event: Opened) -> Change:
        return Upsert(event.account_id, owner=self.owner)

    @on_event(Deposited)
    def deposited(self, event: Deposited) -> Change:
        return Increment(event.account_id, cents=event.cents)


@on_three
@pytest.mark.parametrize("kind", UNBOUND)
async def test_a_value_that_the_driver_does_not_take_holds_its_key_alone(
    rig: Rig, kind: str
) -> None:
    """psycopg refuses it without a word from the server, and that passed for a lost connection."""
    if kind == "a NUL" and not rig.database.is_postgres:
        pytest.skip("SQLite stores it")
    await rig.record(Opened("a", "ann"), Deposited("b", 1))

    await rig.runner(Odd(UNBOUND[kind]), retry_delay=60).drain()

    assert await rig.cents() == {"b": 1}
    assert (await rig.held())["key"] == "a"
    with pytest.raises(RebuildFailed, match="at position 1 failed with"):
        await LogRebuild(Odd(UNBOUND[kind]), rig.parts()).run()


class GivesUp(ReadModel, name="accounts", table=Account):
    swallows = False
    tries = 0

    @on_event(Opened)
    async def opened(self, event: Opened, model: ModelSession) -> Change:
        self.tries += 1
        with suppress(*([TimeoutError] if self.swallows else [])):
            await give_up(model.session)
        return Upsert(event.account_id, owner=event.owner)

    @on_event(Deposited)
    def deposited(self, event: Deposited) -> Change:
        return Increment(event.account_id, cents=event.cents)

    @on_event(Renamed)
    async def renamed(self, event: Renamed, model: ModelSession) -> None:
        del event, model


@on_drivers
@pytest.mark.parametrize("swallows", [False, True], ids=["raised", "swallowed"])
async def test_methods_that_give_up_their_statements_hold_their_keys_alone(
    rig: Rig, swallows: bool
) -> None:
    """The connection goes with the statement: the model stood still for all tenants."""
    model = GivesUp()
    model.swallows = swallows
    await rig.record(Opened("a", "ann"), Deposited("b", 1), Opened("c", "cid"), Deposited("a", 2))

    await rig.runner(model, retry_delay=60).drain()

    assert await rig.cents() == {"b": 1}
    async with rig.database.engine.connect() as connection:
        held = await connection.execute(readmodel_held.select().order_by(readmodel_held.c.key))
    name = "ConnectionClosed" if swallows else "TimeoutError"
    assert [(row.key, row.error_class, row.attempts) for row in held] == [
        ("a", name, 1),
        ("c", name, 1),
    ]


@on_drivers
async def test_a_held_event_that_gives_up_its_statement_again_is_held_for_longer(rig: Rig) -> None:
    model = GivesUp()
    await rig.record(Opened("a", "ann"), Deposited("b", 1))
    runner = rig.runner(model)
    await runner.drain()

    async def is_tried_again() -> bool:
        await runner.drain()
        return bool((await rig.held())["attempts"] == 3)

    await until(is_tried_again, "the held event has failed three times")

    assert model.tries >= 3
    assert await rig.cents() == {"b": 1}


@on_drivers
@pytest.mark.parametrize("swallows", [False, True], ids=["raised", "swallowed"])
async def test_a_rebuild_names_the_event_whose_method_gives_up_its_statement(
    rig: Rig, swallows: bool
) -> None:
    model = GivesUp()
    model.swallows = swallows
    ids = await rig.record(Deposited("b", 1), Opened("a", "ann"))

    with pytest.raises(RebuildFailed) as failed:
        await LogRebuild(model, rig.parts()).run()

    assert (failed.value.event_id, failed.value.position) == (ids[1], 2)
