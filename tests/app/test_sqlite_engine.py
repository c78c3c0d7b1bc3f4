"""The engine that is made for SQLite: how its connections begin, and end when they are cancelled."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import OperationalError

from pillarbox import database
from pillarbox.database import make_engine
from tests.support.cancelling import CancelledAt, on_falling_asleep, on_waking_up, run
from tests.support.waiting import until

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


async def test_the_first_connection_to_a_new_file_waits_for_who_writes_it(tmp_path: Path) -> None:
    """Two processes that began together with a new file once left one with `database is locked`."""
    file, said = tmp_path / "shop.db", list[str]()
    engine = make_engine(f"sqlite:///{file}")

    @event.listens_for(engine.sync_engine, "connect", insert=True)
    def listen(connection: Any, record: object) -> None:
        connection.run_async(lambda driver: driver.set_trace_callback(said.append))

    async def connected() -> str:
        async with engine.connect() as connection:
            mode: str = (await connection.exec_driver_sql("PRAGMA journal_mode")).scalar_one()
            return mode

    async def waits() -> bool:
        return any("BEGIN" in words for words in said) or connecting.done()

    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        connecting = asyncio.ensure_future(connected())
        await until(waits, "the connection waits for the writer")
        other.execute("CREATE TABLE here (id)")
        other.execute("COMMIT")
        mode = await connecting

    assert mode == "wal"
    await engine.dispose()


@pytest.fixture
def read_file(tmp_path: Path) -> Path:
    """A file with a table, whose changes are not written ahead."""
    file = tmp_path / "shop.db"
    with closing(sqlite3.connect(file)) as maker:
        maker.execute("CREATE TABLE here (id)")
    return file


async def test_the_first_connection_waits_for_a_reader_that_goes(read_file: Path) -> None:
    engine = make_engine(f"sqlite:///{read_file}")

    async def connected() -> str:
        async with engine.connect() as connection:
            mode: str = (await connection.exec_driver_sql("PRAGMA journal_mode")).scalar_one()
            return mode

    with closing(sqlite3.connect(read_file, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM here").fetchall()
        connecting = asyncio.ensure_future(connected())
        await asyncio.wait([connecting], timeout=0)
        reader.execute("COMMIT")
        mode = await connecting

    assert mode == "wal"
    await engine.dispose()


async def test_a_reader_that_stays_lets_the_first_connection_fail(
    read_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asked again at once, for ever, with a whole core."""
    monkeypatch.setattr(database, "_BUSY_SECONDS", 0.3)
    engine = make_engine(f"sqlite:///{read_file}")

    with closing(sqlite3.connect(read_file, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM here").fetchall()
        with pytest.raises(OperationalError, match="database is locked"):
            async with asyncio.timeout(30), engine.connect():
                pass

    await engine.dispose()
