"""Operators see how far models are, and pause and resume them."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import update

from pillarbox.errors import ReadModelUnknown
from pillarbox.ops import ReadModelOps
from pillarbox.readmodel.runner import LogFollower
from pillarbox.schema.tables import outbox, pillarbox_audit
from tests.readmodel.rig import Accounts, Deposited, Opened, Rig
from tests.readmodel.test_log import cut
from tests.support.database import on_postgres
from tests.support.waiting import until

WHY = "the table is being moved"


def ops_of(rig: Rig) -> ReadModelOps:
    return ReadModelOps(rig.database.engine, actor="jane")


async def grow_old(rig: Rig, **ages: timedelta) -> None:
    """Make recorded events older, by their keys."""
    now = datetime.now(UTC)
    async with rig.database.engine.begin() as connection:
        for key, age in ages.items():
            old = update(outbox).where(outbox.c.key == key).values(created_at=now - age)
            await connection.execute(old)


async def test_a_model_that_is_behind_says_by_how_much(rig: Rig) -> None:
    await rig.runner().drain()
    await rig.record(Deposited("a", 1), Deposited("a", 1), Deposited("b", 1))
    await grow_old(rig, a=timedelta(hours=1), b=timedelta(hours=2))

    (behind,) = await ops_of(rig).list()
    await rig.runner().drain()
    (there,) = await ops_of(rig).list()

    assert (behind.lag_events, behind.events) == (3, 0)
    assert 7_200 <= behind.lag_seconds < 7_800
    assert (there.lag_events, there.lag_seconds, there.events) == (0, 0.0, 3)
    assert (there.name, there.generation, there.source, there.state) == (
        "accounts", 1, "log", "live",
    )  # fmt: skip


@on_postgres
async def test_rows_that_may_be_deleted_end_before_what_may_still_come_and_what_is_held(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """The guide once said that all up to `position` may go: late rows and held ones were lost."""
    model = Accounts()
    model.broken = True
    runner = rig.runner(model)
    await rig.record(Deposited("a", 1))
    await runner.drain()
    async with rig.slow_transaction(Deposited("slow", 5)) as slow:
        await rig.record(Deposited("a", 1), Opened("held", "ann"), Deposited("held", 3))
        await runner.drain()
        (late,) = await ops_of(rig).list()
        await slow.commit()
    assert late.done_to is not None
    await cut(rig, late.done_to)
    await runner.drain()
    (held,) = await ops_of(rig).list()
    assert held.done_to is not None
    await cut(rig, held.done_to)
    model.broken = False
    await runner.drain()
    await runner.drain()
    (there,) = await ops_of(rig).list()

    assert [(view.position, view.done_to) for view in (late, held, there)] == [
        (5, 1), (5, 3), (5, 5),
    ]  # fmt: skip
    assert await rig.cents() == {"a": 2, "slow": 5, "held": 3}
    assert "history_incomplete" not in caplog.messages


@on_postgres
async def test_a_transaction_that_commits_late_counts_as_lag_until_it_is_applied(rig: Rig) -> None:
    runner = rig.runner()
    await runner.drain()
    async with rig.slow_transaction(Deposited("slow", 3)) as slow:
        await rig.record(Deposited("quick", 1))
        await runner.drain()
        await slow.commit()

    (late,) = await ops_of(rig).list()
    await runner.drain()
    (there,) = await ops_of(rig).list()

    assert (late.position, late.lag_events) == (2, 1)
    assert there.lag_events == 0


async def test_the_lag_has_its_metrics(rig: Rig) -> None:
    await rig.runner().drain()
    await rig.record(Deposited("a", 1))
    await grow_old(rig, a=timedelta(hours=1))

    samples = await ops_of(rig).gauges()

    assert [(sample.name, sample.kind, sample.labels) for sample in samples] == [
        ("pillarbox_readmodel_lag_events", "gauge", (("model", "accounts"),)),
        ("pillarbox_readmodel_lag_seconds", "gauge", (("model", "accounts"),)),
    ]
    assert samples[0].value == 1
    late = samples[1].value
    assert isinstance(late, float)
    assert 3_600 <= late < 4_200


async def test_a_paused_model_stands_still_and_goes_on_when_it_is_resumed(rig: Rig) -> None:
    runner = rig.runner()
    await runner.drain()
    paused = await ops_of(rig).pause("accounts", reason=WHY)
    await rig.record(Deposited("a", 1))
    await runner.drain()
    before = await rig.cents()

    resumed = await ops_of(rig).resume("accounts", reason="it is over")
    await runner.drain()

    assert before == {}
    assert await rig.cents() == {"a": 1}
    assert (paused.affected, resumed.affected) == (1, 1)


async def test_every_act_is_audited(rig: Rig) -> None:
    await rig.runner().drain()

    done = await ops_of(rig).pause("accounts", reason=WHY)
    again = await ops_of(rig).pause("accounts", reason=WHY)

    async with rig.database.engine.connect() as connection:
        entries = (await connection.execute(pillarbox_audit.select())).mappings().all()
    by_id = {entry["audit_id"]: entry for entry in entries}
    entry = by_id[done.audit_id]
    assert (entry["actor"], entry["action"], entry["reason"]) == ("jane", "pause", WHY)
    assert entry["subject"] == {"read_model": "accounts", "paused": 1}
    assert (entry["affected"], by_id[again.audit_id]["affected"]) == (1, 0)


async def test_a_model_that_is_paused_between_a_batch_and_its_held_keys_stands_still(
    rig: Rig,
) -> None:
    model = Accounts()
    model.broken = True
    follower = LogFollower(model, rig.parts())
    await rig.record(Opened("a", "ann"))
    await follower.turn()
    model.broken = False

    async def is_due() -> bool:
        return (await follower.turn()).due

    await until(is_due, "the held key is due")
    await ops_of(rig).pause("accounts", reason=WHY)

    await follower.release_due()

    assert await rig.rows() == {}
    assert await rig.count("readmodel_held") == 1


async def test_a_model_that_nobody_knows_cannot_be_paused(rig: Rig) -> None:
    with pytest.raises(ReadModelUnknown, match="'orders'"):
        await ops_of(rig).pause("orders", reason=WHY)


async def test_events_of_a_held_key_count_once_they_are_applied(rig: Rig) -> None:
    runner = rig.runner()
    runner.model.broken = True  # type: ignore[attr-defined]  # of the model of these tests
    await rig.record(Opened("a", "ann"), Deposited("a", 1), Deposited("b", 1))
    await runner.drain()
    (held,) = await ops_of(rig).list()
    runner.model.broken = False  # type: ignore[attr-defined]  # of the model of these tests

    async def is_released() -> bool:
        await runner.drain()
        return await rig.count("readmodel_held") == 0

    await until(is_released, "the key is due and released")
    (released,) = await ops_of(rig).list()

    assert (held.events, released.events) == (1, 3)


async def test_held_keys_are_counted(rig: Rig) -> None:
    runner = rig.runner(retry_delay=60)
    runner.model.broken = True  # type: ignore[attr-defined]  # of the model of these tests
    await rig.record(Opened("a", "ann"))
    await runner.drain()

    (view,) = await ops_of(rig).list()

    assert (view.held_keys, view.lag_events) == (1, 0)
