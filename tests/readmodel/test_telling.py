"""What a member of a subscribed model hears of its consumer, others read in the database."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from pillarbox.bus.subscription import Outlook
from pillarbox.consumer.standing import Standing, standing_of
from pillarbox.ops import ModelView, ReadModelOps
from pillarbox.readmodel.telling import Teller
from pillarbox.schema.tables import readmodel, readmodel_member
from tests.consumer.hands import item
from tests.readmodel.bank import LONG_AGO, QUICK, Bank, on_two, running
from tests.readmodel.rig import Rig
from tests.support.database import on
from tests.support.waiting import until

HOUR: Final = timedelta(hours=1)
NOW: Final = timedelta()


@pytest.fixture
async def teller(rig: Rig) -> Teller:
    """A member of a model that began long ago, and whose consumer a test speaks for."""
    bank = Bank(rig, config=replace(QUICK, tell_every=60.0))
    await bank.model.drain()
    async with rig.database.engine.begin() as connection:
        await connection.execute(readmodel_member.delete())
        await connection.execute(update(readmodel).values(started_at=LONG_AGO))
    consumer = bank.box.consumer("of-the-test", ["nothing"])
    return Teller(("accounts", 1), bank.model.parts, consumer)


async def view(rig: Rig) -> ModelView:
    (found,) = await ReadModelOps(rig.database.engine, actor="jane").list()
    return found


def ago(age: timedelta) -> datetime:
    return datetime.now(UTC) - age


@on_two
async def test_what_is_in_hand_has_the_age_of_its_message(teller: Teller, rig: Rig) -> None:
    standing = Standing(in_hand=2, oldest=ago(HOUR), waiting=3, at_end=False)

    await teller.hear(standing, NOW)

    found = await view(rig)
    assert found.lag_events == 5
    assert 3_600 <= found.lag_seconds < 4_200


@on_two
async def test_what_waits_is_newer_than_what_was_finished(teller: Teller, rig: Rig) -> None:
    standing = Standing(newest=ago(HOUR), waiting=3, at_end=False)

    await teller.hear(standing, NOW)

    found = await view(rig)
    assert found.lag_events == 3
    assert 3_600 <= found.lag_seconds < 4_200


@on_two
async def test_since_the_end_was_told_nothing_older_waits(teller: Teller, rig: Rig) -> None:
    """The broker was asked an hour ago, and has answered now."""
    await teller.hear(Standing(newest=LONG_AGO, waiting=0, at_end=True), HOUR)

    found = await view(rig)
    assert found.lag_events == 0
    assert 3_600 <= found.lag_seconds < 4_200


@on_two
async def test_what_was_known_before_is_not_forgotten(teller: Teller, rig: Rig) -> None:
    await teller.hear(Standing(waiting=0, at_end=True), HOUR)
    await teller.hear(Standing(waiting=3, at_end=False), NOW)

    found = await view(rig)
    assert found.lag_events == 3
    assert 3_600 <= found.lag_seconds < 4_200


@on_two
async def test_a_producer_whose_clock_is_ahead_does_not_hide_what_comes(
    teller: Teller, rig: Rig
) -> None:
    await teller.hear(Standing(newest=ago(-HOUR), waiting=1, at_end=False), HOUR)

    assert (await view(rig)).lag_seconds >= 3_600


def test_the_oldest_in_hand_and_the_newest_that_was_finished_stand_for_all() -> None:
    old, new = ago(2 * HOUR), ago(HOUR)
    items = [item(1), item(2)]
    for found, came_at in zip(items, (new, old), strict=True):
        found.came_at = came_at

    standing = standing_of(items, [old, None, new], 7)

    assert standing == Standing(in_hand=2, oldest=old, newest=new, finished=7)


def test_whoever_has_something_in_hand_is_not_at_the_end() -> None:
    busy = Standing(in_hand=1).seen_from(Outlook(0, True))

    assert (busy.waiting, busy.at_end) == (0, False)
    assert Standing().seen_from(Outlook(0, True)).at_end is True


async def hold_all(connection: AsyncConnection) -> None:
    """Hold the model's row, for which every batch waits."""
    await connection.execute(select(readmodel).with_for_update())


@on("postgres18+asyncpg")
async def test_that_messages_came_in_hand_is_told_soon(rig: Rig) -> None:
    bank = Bank(rig, config=replace(QUICK, tell_every=3_600.0))

    async def counted(events: int) -> bool:
        views = await ReadModelOps(rig.database.engine, actor="jane").list()
        return [found.lag_events for found in views] == [events]

    async with running(bank.model):
        await until(lambda: counted(0), "nothing has come")
        async with rig.database.engine.begin() as connection:
            await hold_all(connection)
            bank.deposit(5, 1)
            await until(lambda: counted(1), "the message is told of")
        await until(lambda: counted(0), "its end is told of")
