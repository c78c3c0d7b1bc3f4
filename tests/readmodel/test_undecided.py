"""A rebuild, and a model that begins, wait for those who may own what is missing, and no longer."""

import asyncio
import logging

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox import SqlAlchemyOutbox
from pillarbox.errors import HistoryIncomplete, HistoryUndecided
from pillarbox.readmodel.log import Horizon, Log
from pillarbox.readmodel.rebuild import LogRebuild
from tests.readmodel.rig import Accounts, Deposited, Rig
from tests.readmodel.test_holes import deposits, somebody_open
from tests.readmodel.test_log import cut, decided
from tests.readmodel.test_rebuild import TWELVE_CENTS
from tests.support.database import on_postgres
from tests.support.waiting import until


async def test_a_rebuild_does_not_go_on_over_rows_that_were_deleted_meanwhile(rig: Rig) -> None:
    """It once made the rows without them the live ones."""
    await deposits(rig, 4)
    await rig.runner().drain()
    rebuild = LogRebuild(Accounts(), rig.parts(batch_size=2))
    await rebuild.begin()
    await rebuild.fill()
    await cut(rig, 3)

    with pytest.raises(HistoryIncomplete, match=r"stands at position 2 .* begins at position 4"):
        await LogRebuild(Accounts(), rig.parts()).run()

    assert await rig.cents() == {"a": 4}


@on_postgres
async def test_a_rebuild_is_refused_when_all_have_ended_who_were_open_at_its_first_look(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    await deposits(rig, 4)
    rebuild = LogRebuild(Accounts(), rig.parts(batch_size=2))
    await rebuild.begin()
    await rebuild.fill()
    await cut(rig, 3)

    async with somebody_open(rig) as first, asyncio.timeout(30):
        with caplog.at_level(logging.INFO, "pillarbox.readmodel"):
            running = asyncio.ensure_future(rebuild.run())
            await until(lambda: is_undecided(caplog), "the rebuild waits")
            async with somebody_open(rig):
                await first.rollback()
                with pytest.raises(HistoryIncomplete, match="begins at position 4"):
                    await running


@on_postgres
@pytest.mark.parametrize("act", ["fill", "switch"])
async def test_a_rebuild_waits_for_a_row_that_may_still_be_committed(
    rig: Rig, caplog: pytest.LogCaptureFixture, act: str
) -> None:
    """It once ended with an error, though nothing was lost."""
    await deposits(rig, 2)
    rebuild = LogRebuild(Accounts(), rig.parts(), snapshot=TWELVE_CENTS)
    await rebuild.begin()
    await cut(rig, 2)
    async with rig.slow_transaction(Deposited("slow", 3)) as slow, asyncio.timeout(30):
        await deposits(rig, 1)
        with pytest.raises(HistoryUndecided):
            await (rebuild.fill() if act == "fill" else rebuild.switch())
        with caplog.at_level(logging.INFO, "pillarbox.readmodel"):
            running = asyncio.ensure_future(rebuild.run())
            await until(lambda: is_undecided(caplog), "the rebuild waits")
            await slow.commit()
            await running

    assert await rig.cents() == {"a": 13, "slow": 3}
    assert len([r for r in caplog.records if r.message == "history_undecided"]) == 1


async def is_undecided(caplog: pytest.LogCaptureFixture) -> bool:
    return any(record.message == "history_undecided" for record in caplog.records)


@on_postgres
async def test_a_model_does_not_begin_with_a_log_that_was_cut_though_others_come_and_go(
    rig: Rig,
) -> None:
    """On a busy database it was undecided for ever."""
    await deposits(rig, 2)
    await cut(rig, 1)
    runner = rig.runner()
    async with somebody_open(rig) as first:
        with pytest.raises(HistoryUndecided):
            await runner.drain()
        async with somebody_open(rig):
            await first.rollback()
            with pytest.raises(HistoryIncomplete, match="begins at position 2"):
                await decided(runner.drain)


async def test_a_rebuild_from_a_snapshot_of_an_empty_log_goes_on_with_what_comes(rig: Rig) -> None:
    await deposits(rig, 2)
    await rig.runner().drain()
    await cut(rig, 2)
    rebuild = LogRebuild(Accounts(), rig.parts(), snapshot=TWELVE_CENTS)
    await rebuild.begin()
    await deposits(rig, 1)

    await rebuild.run()
    await rig.runner().drain()

    assert await rig.cents() == {"a": 13}


@on_postgres
async def test_a_doubted_number_that_is_committed_between_the_two_looks_is_read(
    rig: Rig, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was above the newest of the first look and passed for lost in the second."""
    await deposits(rig, 2)
    await rig.runner().drain()
    await cut(rig, 2)
    runner, first_look = rig.runner(), Log._horizon
    async with rig.slow_transaction(Deposited("a", 5)) as slow:
        await runner.drain()

        async def horizon(log: Log, session: AsyncSession) -> Horizon:
            found = await first_look(log, session)
            await slow.commit()
            return found

        monkeypatch.setattr(Log, "_horizon", horizon)
        await runner.drain()
        monkeypatch.undo()
    await runner.drain()

    assert await rig.cents() == {"a": 7}
    assert "history_incomplete" not in caplog.messages


@on_postgres
@pytest.mark.parametrize("way", ["begins", "is built again"])
async def test_who_begins_while_a_log_is_being_begun_takes_nothing_for_missing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The oldest row was that of somebody who had begun after the look at who runs."""
    first_look = Log._horizon
    async with asyncio.timeout(30), rig.database.sessions() as slow:

        async def horizon(log: Log, session: AsyncSession) -> Horizon:
            found = await first_look(log, session)
            monkeypatch.undo()
            await rig.add(slow, Deposited("slow", 5))
            await SqlAlchemyOutbox(slow).flush()
            await rig.record(Deposited("a", 1))
            return found

        monkeypatch.setattr(Log, "_horizon", horizon)
        if way == "begins":
            await rig.runner().drain()
        else:
            await LogRebuild(Accounts(), rig.parts()).begin()
        await slow.commit()
    if way == "is built again":
        await LogRebuild(Accounts(), rig.parts()).run()
    await rig.runner().drain()

    assert await rig.cents() == {"a": 1, "slow": 5}
