"""A transaction that stays open for a minute: the log goes on without it, and then takes it in."""

import asyncio
import time
from typing import Final

import pytest

from tests.readmodel.rig import Deposited, Opened, Rig
from tests.support.database import on
from tests.support.waiting import until

MINUTE: Final = 60.0


@pytest.mark.faults
@pytest.mark.timeout(180)
@on("postgres18+asyncpg")
async def test_later_commits_are_applied_at_once_beside_a_transaction_of_a_minute(rig: Rig) -> None:
    runner, count, longest = rig.runner(), 0, 0.0
    await runner.drain()

    async def is_applied() -> bool:
        return (await rig.cents()).get("quick") == count

    async with asyncio.TaskGroup() as group:
        group.create_task(runner.run_forever())
        async with rig.slow_transaction(Opened("slow", "sam"), Deposited("slow", 3)) as slow:
            until_then = time.monotonic() + MINUTE
            while (began := time.monotonic()) < until_then:
                count += 1
                await rig.record(Deposited("quick", 1))
                await until(is_applied, "a later commit is applied")
                longest = max(longest, time.monotonic() - began)
                await asyncio.sleep(0.2)  # the load's own pace
            before = await rig.cents()
            await slow.commit()
        await until(lambda: holds(rig, "slow", 3), "the slow one is applied")
        runner.stop()

    assert before == {"quick": count}
    assert count > MINUTE / 5
    assert longest < MINUTE / 4
    assert await rig.cents() == {"quick": count, "slow": 3}
    assert (await rig.position())[1] == []


async def holds(rig: Rig, account: str, cents: int) -> bool:
    return (await rig.cents()).get(account) == cents
