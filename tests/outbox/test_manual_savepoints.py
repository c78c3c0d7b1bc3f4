"""Savepoints on sessions and connections that record by hand, with and without our knowing."""

from contextlib import suppress

import pytest

from pillarbox import SqlAlchemyOutbox
from tests.outbox.test_manual_outbox import Target, target
from tests.support.database import Database, on

__all__ = ["target"]
pytestmark = on("postgres18+asyncpg", "sqlite+aiosqlite")


class Undo(Exception):
    """Raised inside a savepoint to roll it back."""


async def words(database: Database) -> list[str]:
    return [record.payload["text"] for record in await database.events()]


async def say(target: Target, words: str) -> None:
    await SqlAlchemyOutbox(target).add(topic="words", payload={"text": words})


async def test_a_rolled_back_savepoint_takes_its_events_along(
    database: Database, target: Target
) -> None:
    await say(target, "before")
    with suppress(Undo):
        async with target.begin_nested():
            await say(target, "inside")
            raise Undo
    await say(target, "after")
    await target.commit()

    assert await words(database) == ["before", "after"]


async def test_a_released_savepoint_keeps_its_events(database: Database, target: Target) -> None:
    async with target.begin_nested():
        await say(target, "inside")
    await target.commit()

    assert await words(database) == ["inside"]


async def test_an_outbox_first_used_inside_a_rolled_back_savepoint_records_nothing_of_it(
    database: Database, target: Target
) -> None:
    with suppress(Undo):
        async with target.begin_nested():
            await say(target, "inside")
            raise Undo
    await say(target, "after")
    await target.commit()

    assert await words(database) == ["after"]


async def test_an_outbox_first_used_inside_an_inner_savepoint_respects_the_outer_one(
    database: Database, target: Target
) -> None:
    with suppress(Undo):
        async with target.begin_nested():
            async with target.begin_nested():
                await say(target, "inner")
            await say(target, "outer")
            raise Undo
    await say(target, "after")
    await target.commit()

    assert await words(database) == ["after"]


async def test_an_outbox_first_used_inside_an_inner_rolled_back_savepoint_keeps_the_outer_events(
    database: Database, target: Target
) -> None:
    async with target.begin_nested():
        with suppress(Undo):
            async with target.begin_nested():
                await say(target, "inner")
                raise Undo
        await say(target, "outer")
    await target.commit()

    assert await words(database) == ["outer"]


@pytest.mark.parametrize("inner_fails", [True, False])
async def test_two_levels_of_savepoints(
    database: Database, target: Target, inner_fails: bool
) -> None:
    await say(target, "before")
    async with target.begin_nested():
        await say(target, "outer")
        with suppress(Undo):
            async with target.begin_nested():
                await say(target, "inner")
                if inner_fails:
                    raise Undo
        await say(target, "outer again")
    await target.commit()

    inner = [] if inner_fails else ["inner"]
    assert await words(database) == ["before", "outer", *inner, "outer again"]


async def test_an_early_write_inside_a_rolled_back_savepoint_loses_nothing_of_before(
    database: Database, target: Target
) -> None:
    await say(target, "before")
    with suppress(Undo):
        async with target.begin_nested():
            await say(target, "inside")
            await SqlAlchemyOutbox(target).flush()
            await say(target, "inside too")
            raise Undo
    await target.commit()

    assert await words(database) == ["before"]


async def test_two_savepoints_one_after_the_other(database: Database, target: Target) -> None:
    for text in ("first", "second", "third"):
        with suppress(Undo):
            async with target.begin_nested():
                await say(target, text)
                if text == "second":
                    raise Undo
    await target.commit()

    assert await words(database) == ["first", "third"]
