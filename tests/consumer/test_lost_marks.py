"""A mark whose COMMIT took effect and whose answer was lost: nobody has died, and nobody is blamed."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox.consumer import returning
from pillarbox.consumer.attempts import Attempts, Marks
from pillarbox.consumer.transactions import DatabaseAway, Transactions
from tests.consumer.rig import CONSUMER, Shop
from tests.consumer.test_unfinished_returns import TO_TABLE, deliver_again, into_table
from tests.support.database import on
from tests.support.waiting import until

pytestmark = on("postgres18+psycopg", "postgres18+asyncpg", "sqlite+aiosqlite")

_BEGUN = "tests.begun"
_DIED_ONCE = text(
    "INSERT INTO inbox_attempt (tenant_id, consumer, message_id, started, alone)"
    f" VALUES ('default', '{CONSUMER}', 'k0', 1, 0)"
)

Lose = Callable[[int], list[str]]


@pytest.fixture
def lose(monkeypatch: pytest.MonkeyPatch) -> Lose:
    """Have the answers to the commits of so many marks be lost, and return a list of those."""
    lost: list[str] = []
    mark, transact = Attempts.begin, Transactions.begin

    def plan(most: int) -> list[str]:
        async def begin(self: Attempts, session: AsyncSession, *given: Any) -> Marks:
            marks = await mark(self, session, *given)
            session.info[_BEGUN] = not marks.suspected and not marks.killers
            return marks

        @asynccontextmanager
        async def committed(
            self: Transactions, tenant_id: str | None
        ) -> AsyncIterator[AsyncSession]:
            async with transact(self, tenant_id) as session:
                yield session
            if session.info.pop(_BEGUN, False) and len(lost) < most:
                lost.append("answer")
                raise DatabaseAway(OSError("the answer was lost"))

        monkeypatch.setattr(Attempts, "begin", begin)
        monkeypatch.setattr(Transactions, "begin", committed)
        return lost

    return plan


async def _nothing_parked(shop: Shop) -> None:
    assert await shop.count("inbox_parked") == 0
    assert await shop.count("inbox_attempt") == 0


async def _parked(shop: Shop) -> bool:
    return await shop.count("inbox_parked", "state = 'parked'") == 1


async def _settled(shop: Shop) -> bool:
    return await shop.effects_are(1) or await _parked(shop)


async def test_a_mark_whose_commit_had_no_answer_is_no_crash_of_a_redelivered_message(
    shop: Shop, lose: Lose
) -> None:
    shop.send("k0")
    await deliver_again(shop)
    lost = lose(100)

    async with shop.running(shop.loop(config=TO_TABLE)):
        await until(lambda: _settled(shop), "it is done")

    assert await shop.effects() == ["k0"]
    assert lost == ["answer"]
    await _nothing_parked(shop)


@pytest.mark.parametrize(("losses", "died"), [(2, False), (1, True)], ids=["together", "alone"])
async def test_a_mark_whose_commit_had_no_answer_is_no_crash_of_a_message_that_comes_back(
    shop: Shop, lose: Lose, monkeypatch: pytest.MonkeyPatch, losses: int, died: bool
) -> None:
    await into_table(shop, "k0")
    if died:
        async with shop.database.engine.begin() as connection:
            await connection.execute(_DIED_ONCE)
    monkeypatch.setattr(returning, "_LEASE", timedelta(milliseconds=20))
    lost = lose(losses)

    async with shop.running(shop.loop(config=replace(TO_TABLE, max_crashes=2))):
        await until(lambda: _settled(shop), "it is done")

    assert await shop.effects() == ["k0"]
    assert lost == ["answer"] * losses
    await _nothing_parked(shop)
