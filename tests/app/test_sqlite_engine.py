"""The engine that is made for SQLite: what is cancelled on it does not keep the write lock."""

import asyncio
from pathlib import Path

from sqlalchemy import text

from pillarbox.database import make_engine
from tests.support.cancelling import CancelledAt, on_falling_asleep, on_waking_up, run

ROWS = text("SELECT 1 UNION ALL SELECT 2")


async def test_a_read_that_is_cancelled_gives_up_the_write_lock_of_its_transaction(
    tmp_path: Path,
) -> None:
    """Its cursor kept the closed connection alive until it was collected as garbage."""
    engine = make_engine(f"sqlite:///{tmp_path}/shop.db")
    impatient = make_engine(f"sqlite:///{tmp_path}/shop.db")
    kept: list[object] = []  # as a logged exception keeps the cursor in its frames

    async def read() -> None:
        async with engine.begin() as connection:
            try:
                await connection.execute(ROWS)
            except asyncio.CancelledError as error:
                kept.append(error)
                raise

    for cancel in (on_falling_asleep, on_waking_up):
        for step in range(1, 40):
            if not await run(CancelledAt(read(), frozenset({step}), cancel)):
                break
            async with asyncio.timeout(5), impatient.begin() as connection:
                await connection.execute(ROWS)

    assert kept
    await engine.dispose()
    await impatient.dispose()
