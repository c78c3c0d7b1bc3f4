"""A model follows the log: nothing is lost, nothing is applied twice."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import event, text

from pillarbox.errors import HistoryIncomplete, HistoryUndecided
from pillarbox.readmodel.changes import Change
from pillarbox.readmodel.definition import on as on_event
from pillarbox.readmodel.runner import LogRunner
from tests.readmodel.rig import (
    Accounts,
    Closed,
    Deposited,
    Opened,
    Owners,
    Renamed,
    Rig,
    ids,
)
from tests.support.database import on_postgres
from tests.support.waiting import until


async def test_events_become_rows(rig: Rig) -> None:
    await rig.record(Opened("a", "ann"), Deposited("a", 5), Opened("b", "bob"))
    await rig.record(Renamed("a", "anna"), Deposited("a", 7), Closed("b"))

    await rig.runner().drain()

    rows = await rig.rows()
    assert ids(rows) == ["a"]
    assert rows["default", "a"]["owner"] == "anna"
    assert (rows["default", "a"]["deposits"], rows["default", "a"]["cents"]) == (2, 12)


async def test_a_second_look_applies_nothing_again(rig: Rig) -> None:
    await rig.record(Opened("a", "ann"), Deposited("a", 5))
    runner = rig.runner()
    await runner.drain()

    await runner.drain()
    await rig.runner().drain()

    assert await rig.cents() == {"a": 5}


async def test_batches_are_cut_anywhere(rig: Rig) -> None:
    for _ in range(7):
        await rig.record(*(Deposited(account, 1) for account in "abc"))

    await rig.runner(batch_size=2).drain()

    assert await rig.cents() == {"a": 7, "b": 7, "c": 7}


async def test_a_row_that_is_deleted_and_comes_back_in_one_batch_keeps_nothing_of_the_old(
    rig: Rig,
) -> None:
    """Its columns that the new row does not name once stayed as they were."""
    await rig.record(Opened("a", "ann"), Deposited("a", 5))
    await rig.runner().drain()

    await rig.record(Closed("a"), Deposited("a", 7))
    await rig.runner().drain()

    row = (await rig.rows())["default", "a"]
    assert (row["owner"], row["status"], row["deposits"], row["cents"]) == (None, None, 1, 7)


@on_postgres
async def test_a_transaction_that_commits_late_is_not_lost(rig: Rig) -> None:
    """The numbers of a slow transaction are passed, remembered, and applied after its commit."""
    runner = await begun(rig, batch_size=10)
    async with rig.slow_transaction(Opened("slow", "sam"), Deposited("slow", 3)) as slow:
        for number in range(50):
            await rig.record(Deposited("quick", number))
            await runner.drain()
        before, (_, gaps) = await rig.cents(), await rig.position()

        await slow.commit()
        await rig.record(Deposited("quick", 1))
        await runner.drain()

    assert before == {"quick": sum(range(50))}
    assert [gap[:2] for gap in gaps] == [[1, 2]]
    assert await rig.cents() == {"quick": sum(range(50)) + 1, "slow": 3}
    assert (await rig.position())[1] == []


@on_postgres
async def test_a_late_commit_is_applied_without_anything_new_behind_it(rig: Rig) -> None:
    runner = await begun(rig)
    async with rig.slow_transaction(Deposited("slow", 3)) as slow:
        await rig.record(Deposited("quick", 1))
        await runner.drain()
        await slow.commit()

    await runner.drain()

    assert await rig.cents() == {"quick": 1, "slow": 3}
    assert await rig.position() == (2, [])


class Remembering(Accounts, name="accounts", table=Accounts.table):
    def __init__(self) -> None:
        self.cents: list[int] = []

    @on_event(Deposited)
    def deposited(self, event: Deposited) -> Change:
        self.cents.append(event.cents)
        return super().deposited(event)


@on_postgres
async def test_a_late_transaction_of_many_batches_is_applied_in_the_order_of_its_keys(
    rig: Rig,
) -> None:
    """Nothing that is recorded after it overtakes what of it is not read yet."""
    model = Remembering()
    await begun(rig)
    runner = rig.runner(model, batch_size=2)
    async with rig.slow_transaction(*(Deposited("slow", cents) for cents in range(5))) as slow:
        await rig.record(Deposited("quick", 99))
        await runner.drain()
        await slow.commit()
    await rig.record(Deposited("slow", 5), Deposited("slow", 6))

    await runner.drain()

    assert model.cents == [99, 0, 1, 2, 3, 4, 5, 6]
    assert await rig.position() == (8, [])


@on_postgres
async def test_a_transaction_that_rolls_back_leaves_no_gap_behind(rig: Rig) -> None:
    runner = await begun(rig)
    async with rig.slow_transaction(Deposited("slow", 3)) as slow:
        await rig.record(Deposited("quick", 1))
        await runner.drain()
        await slow.rollback()

    await runner.drain()

    assert await rig.cents() == {"quick": 1}
    assert await rig.position() == (2, [])


@on_postgres
async def test_a_row_that_comes_back_with_another_transaction_is_not_applied_again(
    rig: Rig,
) -> None:
    (event_id,) = await rig.record(Deposited("a", 5))
    runner = rig.runner()
    await runner.drain()

    async with rig.database.engine.begin() as connection:
        await connection.exec_driver_sql(
            f"UPDATE outbox SET txid = pg_current_xact_id() WHERE id = '{event_id}'"
        )
    await runner.drain()

    assert await rig.cents() == {"a": 5}


async def test_tenants_have_rows_of_their_own(rig: Rig) -> None:
    for tenant_id, cents in (("acme", 5), ("globex", 7)):
        await rig.record(Deposited("a", cents), tenant_id=tenant_id)

    await rig.runner().drain()

    rows = await rig.rows()
    assert {key: row["cents"] for key, row in rows.items()} == {
        ("acme", "a"): 5,
        ("globex", "a"): 7,
    }


async def test_a_row_may_be_fed_by_many_aggregates(rig: Rig) -> None:
    await rig.record(Opened("a", "ann"), Opened("b", "ann"), Opened("c", "cid"))

    await rig.runner(Owners()).drain()

    rows = await rig.rows(Owners.table)
    assert {key[1]: row["accounts"] for key, row in rows.items()} == {"ann": 2, "cid": 1}


async def test_two_runners_share_one_model(rig: Rig) -> None:
    runners = [rig.runner(batch_size=3), rig.runner(batch_size=3)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(runner.run_forever()) for runner in runners]
        for number in range(30):
            await rig.record(Deposited("a", number))
        await until(lambda: at(rig, 30), "all 30 are applied")
        for runner in runners:
            runner.stop()
    del tasks

    assert await rig.cents() == {"a": sum(range(30))}
    assert (await rig.rows())["default", "a"]["deposits"] == 30


async def at(rig: Rig, position: int) -> bool:
    return (await rig.position())[0] == position


async def test_a_history_that_was_cut_is_refused_and_named(rig: Rig) -> None:
    await rig.record(Deposited("a", 1), Deposited("a", 1), Deposited("a", 1))
    await cut(rig, 2)

    with pytest.raises(HistoryIncomplete, match="begins at position 3") as refused:
        await decided(rig.runner().drain)

    assert refused.value.found == "it begins at position 3"
    await rig.runner(history="kept").drain()
    assert await rig.cents() == {"a": 1}


async def test_a_history_of_which_nothing_is_left_is_refused(rig: Rig) -> None:
    await rig.record(Deposited("a", 1))
    await cut(rig, 1)

    with pytest.raises(HistoryIncomplete, match="is empty"):
        await decided(rig.runner().drain)


async def test_a_model_begins_before_the_first_event(rig: Rig) -> None:
    runner = rig.runner()
    await runner.drain()

    await rig.record(Deposited("a", 1))
    await runner.drain()

    assert await rig.cents() == {"a": 1}


async def decided(act: Callable[[], Awaitable[None]]) -> None:
    """Do it until nobody is open who may own what is missing: anybody, say an autovacuum, may be."""

    async def is_decided() -> bool:
        try:
            await act()
        except HistoryUndecided:
            return False
        return True

    await until(is_decided, "nobody is open who was at the first look")


async def cut(rig: Rig, last: int) -> None:
    async with rig.database.engine.begin() as connection:
        await connection.exec_driver_sql(f"DELETE FROM outbox WHERE seq <= {last}")


@on_postgres
async def test_whether_the_history_was_cut_is_decided_when_an_open_transaction_has_ended(
    rig: Rig,
) -> None:
    """A model that began here once lost the first events: their transaction was still open."""
    async with rig.slow_transaction(Deposited("slow", 3)) as slow:
        await rig.record(Deposited("quick", 1))
        with pytest.raises(HistoryUndecided):
            await rig.runner().drain()
        await slow.commit()

    await rig.runner().drain()

    assert await rig.cents() == {"quick": 1, "slow": 3}


@on_postgres
async def test_whether_a_number_was_drawn_is_asked_before_the_snapshot_is_taken(rig: Rig) -> None:
    """A first event that came in between once was neither there nor open, and refused as cut off."""
    asked: list[str] = []
    event.listen(
        rig.database.engine.sync_engine,
        "before_cursor_execute",
        lambda _connection, _cursor, statement, *_: asked.append(statement),
    )

    await rig.runner().drain()

    (drawn,) = [place for place, said in enumerate(asked) if "pg_sequence_last_value" in said]
    snapshot = next(place for place, said in enumerate(asked) if "min(outbox.seq)" in said)
    assert drawn < snapshot


@on_postgres
async def test_a_kept_history_waits_for_the_transactions_below_its_oldest_row(rig: Rig) -> None:
    runner = rig.runner(history="kept")
    async with rig.slow_transaction(Deposited("slow", 3)) as slow:
        await rig.record(Deposited("quick", 1))
        await runner.drain()
        await slow.commit()

    await runner.drain()

    assert await rig.cents() == {"quick": 1, "slow": 3}


@on_postgres
async def test_a_transaction_that_is_younger_than_all_that_have_ended_is_waited_for(
    rig: Rig,
) -> None:
    """No snapshot lists it; its number was once passed as one that never comes."""
    runner = await begun(rig)
    async with rig.database.sessions() as older:
        await older.execute(text("SELECT pg_current_xact_id()"))
        async with rig.slow_transaction(Deposited("young", 3)) as younger:
            await rig.add(older, Deposited("old", 1))
            await older.commit()
            await runner.drain()
            assert await rig.cents() == {"old": 1}
            await younger.commit()

    await runner.drain()

    assert await rig.cents() == {"old": 1, "young": 3}


@on_postgres
async def test_a_first_event_that_is_not_committed_yet_is_no_history_that_was_cut(
    rig: Rig,
) -> None:
    async with rig.slow_transaction(Deposited("a", 3)) as first:
        with pytest.raises(HistoryUndecided):
            await rig.runner().drain()
        await first.commit()

    await rig.runner().drain()

    assert await rig.cents() == {"a": 3}


async def test_a_first_transaction_that_rolled_back_looks_like_a_cut_where_numbers_are_not_taken_back(
    rig: Rig,
) -> None:
    """Nobody can tell a number that was only drawn from a row that was deleted: see 0015."""
    async with rig.slow_transaction(Deposited("a", 3)) as first:
        await first.rollback()
    await rig.record(Deposited("b", 1))

    if rig.database.is_postgres:
        with pytest.raises(HistoryIncomplete, match="begins at position 2"):
            await decided(rig.runner().drain)
        await rig.runner(history="kept").drain()
    else:
        await rig.runner().drain()

    assert await rig.cents() == {"b": 1}


async def begun(rig: Rig, **options: Any) -> LogRunner:
    """Return the runner of a model that has begun before the first event."""
    runner = rig.runner(**options)
    await runner.drain()
    return runner
