"""Rows that are gone before a model has read them are noticed, as far as anybody can know."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session

from pillarbox.consumer.transactions import DatabaseAway
from pillarbox.errors import HistoryIncomplete
from pillarbox.ops import ReadModelOps
from pillarbox.readmodel.changes import Change
from pillarbox.readmodel.checkpoint import Generation
from pillarbox.readmodel.definition import on as on_event
from pillarbox.readmodel.history import refuse_hole, tell_missed
from pillarbox.readmodel.log import Beginning
from pillarbox.readmodel.parts import Parts
from pillarbox.readmodel.position import Position
from pillarbox.readmodel.runner import LogFollower, LogRunner
from tests.readmodel.bank import on_two
from tests.readmodel.rig import Accounts, Deposited, Opened, Rig
from tests.readmodel.test_log import cut
from tests.support.database import on, on_postgres
from tests.support.waiting import until

on_one = on("postgres18+asyncpg")


async def deposits(rig: Rig, count: int) -> None:
    for _ in range(count):
        await rig.record(Deposited("a", 1))


def told(caplog: pytest.LogCaptureFixture) -> list[int]:
    """Return the positions behind which holes were told of."""
    found = [record for record in caplog.records if record.message == "history_incomplete"]
    return [int(re.findall(r"position (\d+)", record.__dict__["found"])[0]) for record in found]


async def until_told(runner: LogRunner, caplog: pytest.LogCaptureFixture) -> None:
    """Run a model until it tells of a hole: a transaction of anybody, say an autovacuum, may be open."""

    async def is_told() -> bool:
        await runner.drain()
        return bool(told(caplog))

    await until(is_told, "the hole is told of")


@asynccontextmanager
async def somebody_open(rig: Rig) -> AsyncIterator[AsyncSession]:
    """Hold a transaction open that has an id and no row of the log."""
    async with rig.database.sessions() as session:
        await session.execute(text("SELECT pg_current_xact_id()"))
        yield session


async def away_while_rows_go(rig: Rig) -> None:
    """Let a model stand at position 2 while rows 3 and 4 come and are deleted, beside a row 5."""
    await deposits(rig, 2)
    await rig.runner().drain()
    await deposits(rig, 3)
    await cut(rig, 4)


def test_what_is_told_of_a_hole_names_the_position_and_what_is_left() -> None:
    at = Generation(
        name="m", generation=1, source="log", state="live", position=Position(2), first_position=1
    )

    with pytest.raises(HistoryIncomplete) as begins:
        refuse_hole(at, Beginning(5, 5))
    with pytest.raises(HistoryIncomplete) as empty:
        refuse_hole(at, Beginning(None, 3))

    assert begins.value.found == "the model stands at position 2 and the log begins at position 5"
    assert empty.value.found == "the model stands at position 2 and the log is empty after number 3"
    assert tell_missed("m", 3).found == "the model stood at position 2 and number 3 never came"


async def test_a_model_that_was_away_while_rows_were_deleted_says_so_and_goes_on(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """It once went on with the next row that was there, and nobody heard of those between."""
    await away_while_rows_go(rig)

    runner = rig.runner()
    await until_told(runner, caplog)
    await runner.drain()

    assert told(caplog) == [2]
    assert await rig.cents() == {"a": 3}


async def test_a_model_that_was_away_while_the_log_was_emptied_says_so(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    await deposits(rig, 2)
    await rig.runner().drain()
    await deposits(rig, 1)
    await cut(rig, 3)

    await until_told(rig.runner(), caplog)

    assert told(caplog) == [2]


async def test_nothing_is_said_when_all_that_was_deleted_had_been_read(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    await deposits(rig, 2)
    await rig.runner().drain()
    await cut(rig, 2)
    await rig.runner().drain()
    await deposits(rig, 1)

    await rig.runner().drain()

    assert await rig.cents() == {"a": 3}
    assert told(caplog) == []


async def test_nothing_is_said_of_a_model_that_is_content_with_what_is_kept(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    await deposits(rig, 2)
    await rig.runner().drain()
    await deposits(rig, 2)
    await cut(rig, 3)

    await rig.runner(history="kept").drain()

    assert await rig.cents() == {"a": 3}
    assert told(caplog) == []


async def test_a_pause_is_an_absence_too(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """The process ran all the time, and did not look."""
    runner, ops = rig.runner(), ReadModelOps(rig.database.engine, actor="jane")
    await deposits(rig, 1)
    await runner.drain()
    await ops.pause("accounts", reason="a test")
    await deposits(rig, 2)
    await runner.drain()
    await cut(rig, 2)
    await ops.resume("accounts", reason="it is over")

    await until_told(runner, caplog)

    assert told(caplog) == [1]


@on_postgres
async def test_a_hole_is_told_of_when_all_have_ended_who_were_open_at_the_first_look(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """Any transaction of the cluster once had the model go on without a word, for good."""
    await away_while_rows_go(rig)
    runner = rig.runner()
    async with somebody_open(rig) as first:
        await runner.drain()
        before = told(caplog), await rig.cents()
        async with somebody_open(rig):
            await first.rollback()
            await until_told(runner, caplog)
    await runner.drain()

    assert before == ([], {"a": 3})
    assert told(caplog) == [2]
    assert (await rig.position())[1] == []


@on_postgres
async def test_a_hole_of_a_log_that_was_emptied_is_told_of_though_nothing_comes(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    await deposits(rig, 2)
    await rig.runner().drain()
    await deposits(rig, 1)
    await cut(rig, 3)
    runner = rig.runner()
    async with somebody_open(rig) as first:
        await runner.drain()
        before = told(caplog)
        async with somebody_open(rig):
            await first.rollback()
            await until_told(runner, caplog)
    await runner.drain()

    assert before == []
    assert told(caplog) == [2]


@on_one
async def test_a_hole_is_told_of_by_the_next_process_when_the_first_one_has_died(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    await away_while_rows_go(rig)
    async with somebody_open(rig):
        await rig.runner().drain()
        before = told(caplog)

    await until_told(rig.runner(), caplog)

    assert before == []
    assert told(caplog) == [2]


@on_one
async def test_nothing_is_said_when_another_process_has_read_the_late_row_and_it_is_deleted(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    await deposits(rig, 1)
    await rig.runner().drain()
    await cut(rig, 1)
    runner = rig.runner()
    async with rig.slow_transaction(Deposited("slow", 3)) as slow:
        await deposits(rig, 1)
        await runner.drain()
        await slow.commit()
    await rig.runner().drain()
    await cut(rig, 2)

    await runner.drain()

    assert await rig.cents() == {"a": 2, "slow": 3}
    assert told(caplog) == []


@on_one
async def test_a_model_that_takes_what_is_kept_drops_its_doubts_without_a_word(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    await away_while_rows_go(rig)
    async with somebody_open(rig):
        await rig.runner().drain()

    runner = rig.runner(history="kept")

    async def is_settled() -> bool:
        await runner.drain()
        return bool((await rig.position())[1] == [])

    await until(is_settled, "the doubt is gone")
    assert told(caplog) == []


class Leaving(Session):
    """A session whose database can be away."""

    away = False


@event.listens_for(Leaving, "after_begin")
def be_away(session: Leaving, *_: object) -> None:
    if session.away:
        raise ConnectionResetError


class Torn(Accounts):
    """A model whose database goes away while an event fails."""

    @on_event(Opened)
    def opened(self, event: Opened) -> Change:
        Leaving.away = True
        raise LookupError(event.account_id)


@pytest.fixture
def follower(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> LogFollower:
    """A process whose database can be away."""
    monkeypatch.setattr(Leaving, "away", False)
    sessions = async_sessionmaker(rig.database.engine, sync_session_class=Leaving)
    return LogFollower(Torn(), Parts(sessions, rig.parts().config))


@on_two
@pytest.mark.parametrize("while_", ["a batch is done again", "held keys are tried again"])
async def test_a_database_that_was_away_is_an_absence_too(
    rig: Rig, follower: LogFollower, caplog: pytest.LogCaptureFixture, while_: str
) -> None:
    """It was one only when the first try of a batch met it."""
    await deposits(rig, 1)
    await follower.turn()
    if while_ == "a batch is done again":
        await rig.record(Opened("b", "bob"))
        with pytest.raises(DatabaseAway):
            await follower.turn()
    else:
        Leaving.away = True
        with pytest.raises(DatabaseAway):
            await follower.release_due()
    Leaving.away = False
    await deposits(rig, 2)
    await cut(rig, 2)

    async def is_told() -> bool:
        await follower.turn()
        return bool(told(caplog))

    await until(is_told, "the hole is told of")
    assert told(caplog) == [1]


@on_postgres
async def test_a_row_that_may_still_be_committed_is_no_hole(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    await deposits(rig, 1)
    await rig.runner().drain()
    await cut(rig, 1)
    async with rig.slow_transaction(Deposited("slow", 3)) as slow:
        await deposits(rig, 1)
        await rig.runner().drain()
        await slow.commit()

    await rig.runner().drain()

    assert await rig.cents() == {"a": 2, "slow": 3}
    assert told(caplog) == []


async def test_a_number_that_was_rolled_back_is_no_hole_while_an_older_row_is_there(
    rig: Rig,
) -> None:
    await deposits(rig, 1)
    await rig.runner().drain()
    async with rig.slow_transaction(Deposited("b", 3)) as slow:
        await slow.rollback()
    await deposits(rig, 1)

    await rig.runner().drain()

    assert await rig.cents() == {"a": 2}


async def test_a_held_key_whose_event_is_deleted_stays_held_and_says_so(rig: Rig) -> None:
    """It was once released as if the event had been applied."""
    runner = rig.runner()
    runner.model.broken = True  # type: ignore[attr-defined]  # of the model of these tests
    await rig.record(Opened("a", "ann"), Deposited("a", 5))
    await runner.drain()
    await cut(rig, 1)
    runner.model.broken = False  # type: ignore[attr-defined]  # of the model of these tests

    async def is_missed() -> bool:
        await runner.drain()
        return bool((await rig.held())["error_class"] == "EventGone")

    await until(is_missed, "the key is due and its event is missed")
    held = await rig.held()

    assert (held["seq"], held["key"]) == (1, "a")
    assert "was deleted from the log before it was applied" in held["error_message"]
    assert await rig.cents() == {}
