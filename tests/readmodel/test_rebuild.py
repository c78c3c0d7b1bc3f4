"""A model is built again beside its readers."""

import asyncio

import pytest
from sqlalchemy import insert, literal, select
from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox import Pillarbox
from pillarbox.errors import HistoryIncomplete, InvalidConfig, RebuildFailed
from pillarbox.readmodel.checkpoint import Checkpoints, Generation
from pillarbox.readmodel.parts import Parts
from pillarbox.readmodel.progress import Progress
from pillarbox.readmodel.rebuild import LogRebuild
from pillarbox.readmodel.runner import LogFollower
from tests.readmodel.bank import on_two
from tests.readmodel.rig import Account, Accounts, Closed, Deposited, Opened, Rig
from tests.readmodel.test_log import cut
from tests.support.database import on, on_postgres
from tests.support.waiting import until


async def spoil(rig: Rig) -> None:
    """Put a row into the live table that no event explains."""
    async with rig.database.sessions() as session:
        session.add(Account(tenant_id="default", account_id="ghost", cents=99))
        await session.commit()


async def test_a_rebuild_replaces_the_rows_by_the_fold(rig: Rig) -> None:
    await rig.record(Opened("a", "ann"), Deposited("a", 5), Opened("b", "bob"), Closed("b"))
    await rig.runner().drain()
    await spoil(rig)

    await LogRebuild(Accounts(), rig.parts(batch_size=2)).run()

    assert await rig.cents() == {"a": 5}
    assert await rig.count("account_shadow") == 0
    assert await rig.count("readmodel") == 1


async def test_a_model_goes_on_after_its_rebuild(rig: Rig) -> None:
    runner = rig.runner()
    await rig.record(Deposited("a", 5))
    await runner.drain()
    await LogRebuild(Accounts(), rig.parts()).run()

    await rig.record(Deposited("a", 7))
    await runner.drain()

    assert await rig.cents() == {"a": 12}


async def test_a_model_that_never_ran_is_built_by_a_rebuild(rig: Rig) -> None:
    await rig.record(Deposited("a", 5))

    await LogRebuild(Accounts(), rig.parts()).run()
    await rig.runner().drain()

    assert await rig.cents() == {"a": 5}


async def test_a_rebuild_runs_beside_live_traffic(rig: Rig) -> None:
    """Recording, the live runner and the rebuild at once: the rows are those of the events."""
    runner, total = rig.runner(batch_size=3), 0
    for number in range(40):
        await rig.record(Deposited("a", number))
        total += number
    async with asyncio.TaskGroup() as group:
        group.create_task(runner.run_forever())
        rebuild = group.create_task(LogRebuild(Accounts(), rig.parts(batch_size=5)).run())
        for number in range(40):
            await rig.record(Deposited("a", number))
            total += number
        await rebuild
        runner.stop()
    await rig.runner().drain()

    assert await rig.cents() == {"a": total}


@on_postgres
async def test_a_transaction_that_is_open_at_the_switch_is_not_lost(rig: Rig) -> None:
    await rig.record(Deposited("a", 1))
    await rig.runner().drain()
    async with rig.slow_transaction(Deposited("slow", 3)) as slow:
        await rig.record(Deposited("a", 1))
        await LogRebuild(Accounts(), rig.parts()).run()
        await slow.commit()

    await rig.runner().drain()

    assert await rig.cents() == {"a": 2, "slow": 3}


async def test_a_rebuild_tells_how_far_it_is(rig: Rig) -> None:
    await rig.record(*(Deposited("a", 1) for _ in range(10)))
    told: list[Progress] = []

    await LogRebuild(Accounts(), rig.parts(batch_size=4), report=told.append).run()

    assert [(step.phase, step.position, step.events) for step in told] == [
        ("filling", 4, 4), ("filling", 8, 8), ("filling", 10, 10), ("switching", 10, 10),
        ("done", 10, 10),
    ]  # fmt: skip
    assert told[0].share == 0.4
    assert told[0].events_per_second > 0
    remaining = told[0].remaining
    assert remaining is not None
    assert remaining.total_seconds() > 0


async def test_the_way_of_a_rebuild_begins_with_the_oldest_event_that_is_kept(rig: Rig) -> None:
    await rig.record(*(Deposited("a", 1) for _ in range(14)))
    await cut(rig, 10)
    told: list[Progress] = []

    parts = rig.parts(batch_size=2, history="kept")
    await LogRebuild(Accounts(), parts, report=told.append).run()

    assert [(step.position, step.share) for step in told[:2]] == [(12, 0.5), (14, 1.0)]


async def test_the_end_moves_when_events_come_during_a_rebuild(rig: Rig) -> None:
    """It once told that nothing was left while there was as much again."""
    await rig.record(Deposited("a", 1), Deposited("a", 1))
    told: list[Progress] = []
    rebuild = LogRebuild(Accounts(), rig.parts(batch_size=2), report=told.append)
    await rebuild.begin()
    await rig.record(*(Deposited("a", 1) for _ in range(4)))

    await rebuild.run()

    assert [(step.position, step.target) for step in told[:3]] == [(2, 6), (4, 6), (6, 6)]


async def test_a_rebuild_of_a_history_that_was_cut_is_refused_and_the_live_table_stays(
    rig: Rig,
) -> None:
    await rig.record(Deposited("a", 5), Deposited("a", 7))
    await rig.runner().drain()
    await cut(rig, 1)

    with pytest.raises(HistoryIncomplete, match="begins at position 2"):
        await LogRebuild(Accounts(), rig.parts()).run()

    assert await rig.cents() == {"a": 12}
    assert await rig.count("readmodel") == 1


TWELVE_CENTS = select(
    literal("default").label("tenant_id"), literal("a").label("account_id"),
    literal(12).label("cents"), literal(2).label("deposits"),
)  # fmt: skip

ONE_CENT = select(
    literal("default").label("tenant_id"), literal("a").label("account_id"),
    literal(1).label("cents"),
)  # fmt: skip


async def test_a_rebuild_starts_from_a_snapshot_query(rig: Rig) -> None:
    await rig.record(Deposited("a", 5), Deposited("a", 7))
    await rig.runner().drain()
    await cut(rig, 1)

    rebuild = LogRebuild(Accounts(), rig.parts(), snapshot=TWELVE_CENTS)
    await rebuild.begin()
    await rig.record(Deposited("a", 1))
    await rebuild.run()

    assert await rig.cents() == {"a": 13}


async def test_a_cut_log_does_not_replace_the_rows_of_a_snapshot_query(rig: Rig) -> None:
    """The oldest row at the snapshot once passed for the first event of the model."""
    await rig.record(Deposited("a", 5), Deposited("a", 7))
    await rig.runner().drain()
    await cut(rig, 1)
    await LogRebuild(Accounts(), rig.parts(), snapshot=TWELVE_CENTS).run()

    with pytest.raises(HistoryIncomplete, match="begins at position 2"):
        await LogRebuild(Accounts(), rig.parts()).run()

    assert await rig.cents() == {"a": 12}


@on_two
async def test_a_snapshot_query_is_refused_by_a_rebuild_that_has_begun_without_it(rig: Rig) -> None:
    """It was once left out without a word."""
    await rig.record(Deposited("a", 5), Deposited("a", 7))
    await rig.runner().drain()
    box = Pillarbox(rig.database.engine, service="bank", environ={})
    model = box.read_model(Accounts)
    await LogRebuild(Accounts(), rig.parts()).begin()

    with pytest.raises(InvalidConfig, match=r"snapshot comes too late.*abandon"):
        await model.rebuild(snapshot=ONE_CENT)
    before = await rig.cents()
    await model.abandon()
    await model.rebuild(snapshot=ONE_CENT)

    assert before == {"a": 12}
    assert await rig.cents() == {"a": 1}


@on("postgres18+asyncpg", "postgres18+psycopg")
async def test_a_snapshot_does_not_see_a_transaction_that_is_open_and_its_events_come_later(
    rig: Rig,
) -> None:
    await rig.record(Opened("a", "ann"))
    snapshot = select(Account.tenant_id, Account.account_id, Account.cents)
    await rig.runner().drain()
    async with rig.slow_transaction(Deposited("slow", 3)) as slow:
        await rig.record(Deposited("a", 1))
        await rig.runner().drain()
        await LogRebuild(Accounts(), rig.parts(), snapshot=snapshot).run()
        await slow.commit()

    await rig.runner().drain()

    assert await rig.cents() == {"a": 1, "slow": 3}


@on_postgres
async def test_a_snapshot_that_waited_for_the_live_runner_sees_what_it_applied(rig: Rig) -> None:
    """The runner's commit once ended the rebuild with a serialization failure."""
    snapshot = select(Account.tenant_id, Account.account_id, Account.cents)
    await rig.runner().drain()
    await rig.record(Deposited("a", 5))
    follower = LogFollower(Accounts(), rig.parts())
    async with asyncio.TaskGroup() as group, rig.parts().transactions.begin(None) as session:
        await follower.step(session, await follower.locked(session))
        group.create_task(LogRebuild(Accounts(), rig.parts(), snapshot=snapshot).run())
        await until(lambda: somebody_waits(rig), "the rebuild waits for the live row")

    assert await rig.cents() == {"a": 5}


async def test_a_snapshot_without_the_key_is_refused(rig: Rig) -> None:
    with pytest.raises(InvalidConfig, match="snapshot has the columns cents"):
        LogRebuild(Accounts(), rig.parts(), snapshot=select(Account.cents))


async def test_an_event_that_fails_stops_the_rebuild_which_goes_on_when_it_is_mended(
    rig: Rig,
) -> None:
    model = Accounts()
    await rig.record(Deposited("x", 1), Deposited("x", 1), Opened("a", "ann"))
    await rig.runner().drain()
    model.broken = True

    with pytest.raises(RebuildFailed, match="at position 3 failed with Poison: a") as failed:
        await LogRebuild(model, rig.parts(batch_size=2)).run()
    rows = await rig.cents()
    model.broken = False
    told: list[Progress] = []
    await LogRebuild(model, rig.parts(batch_size=2), report=told.append).run()

    assert failed.value.position == 3
    assert rows == {"x": 2, "a": 0}
    assert told[0].events == 3  # the first two were not applied again
    assert await rig.cents() == {"x": 2, "a": 0}


async def test_a_rebuild_that_is_given_up_leaves_the_live_table_alone(rig: Rig) -> None:
    await rig.record(Deposited("a", 5))
    await rig.runner().drain()
    rebuild = LogRebuild(Accounts(), rig.parts())
    await rebuild.begin()

    await rebuild.abandon()
    await rig.runner().drain()

    assert await rig.cents() == {"a": 5}
    assert await rig.count("readmodel") == 1


@on_postgres
async def test_a_runner_that_waited_for_the_switch_goes_on_with_the_new_generation(
    rig: Rig,
) -> None:
    """It once found its row deleted, and began the model anew as another generation."""
    await rig.record(Deposited("a", 5))
    await rig.runner().drain()
    rebuild = LogRebuild(Accounts(), rig.parts())
    await rebuild.begin()
    async with asyncio.TaskGroup() as group, rig.parts().transactions.begin(None) as session:
        live = await Checkpoints().find(session, "accounts", lock=True)
        new = await Checkpoints().find(session, "accounts", "filling", lock=True)
        assert live is not None
        assert new is not None
        group.create_task(rig.runner().drain())
        await until(lambda: somebody_waits(rig), "the runner waits for the row")
        await Checkpoints().switch(session, live, new)

    assert await rig.count("readmodel") == 1


async def somebody_waits(rig: Rig) -> bool:
    return bool(await rig.database.scalar("SELECT count(*) FROM pg_locks WHERE NOT granted"))


async def test_a_model_begins_to_run_beside_a_first_rebuild_that_was_killed(rig: Rig) -> None:
    """The runner once found the number of its generation taken, and never began."""
    await rig.record(Deposited("a", 5))
    await LogRebuild(Accounts(), rig.parts()).begin()

    await rig.runner().drain()
    before = await rig.cents()
    await LogRebuild(Accounts(), rig.parts()).run()
    await rig.record(Deposited("a", 1))
    await rig.runner().drain()

    assert (before, await rig.cents()) == ({"a": 5}, {"a": 6})


class Interrupted(Parts):
    """Parts of a rebuild beside which another one begins, and fills its first batch."""

    async def refuse_blindness(self, session: AsyncSession) -> None:
        await super().refuse_blindness(session)
        other = LogRebuild(Accounts(), Parts(self.session_factory, self.config))
        await other.begin()
        async with self.transactions.begin(None) as filling:
            follower = LogFollower(Accounts(), self, "filling")
            await follower.step(filling, await follower.locked(filling))


@on_postgres
async def test_two_rebuilds_that_begin_at_once_go_on_as_one(rig: Rig) -> None:
    """The second once emptied the table that the first had begun to fill."""
    await rig.record(Deposited("a", 5))
    parts = rig.parts()

    await LogRebuild(Accounts(), Interrupted(parts.session_factory, parts.config)).run()

    assert await rig.cents() == {"a": 5}


@on_postgres
async def test_a_clean_up_leaves_the_shadow_table_to_a_rebuild_that_begins_beside_it(
    rig: Rig,
) -> None:
    """It once looked for a rebuild without a lock, and deleted the rows of the next one."""
    await rig.record(Deposited("a", 5))
    await rig.runner().drain()
    filling = Generation(name="accounts", generation=2, source="log", state="filling")
    async with asyncio.TaskGroup() as group, rig.parts().transactions.begin(None) as session:
        await Checkpoints().find(session, "accounts", lock=True)
        group.create_task(LogRebuild(Accounts(), rig.parts()).clean_up())
        await until(lambda: somebody_waits(rig), "the clean-up waits for the live row")
        await Checkpoints().begin(session, filling)
        await session.execute(insert(Accounts.shadow).values(tenant_id="default", account_id="a"))

    assert await rig.count("account_shadow") == 1
