"""A hundred thousand random keys of one caller, through the store, from several processes at once."""

import asyncio
import sys

import pytest

from pillarbox.database import sync_url
from tests.idempotency.conftest import Make
from tests.idempotency.flood import AT_ONCE
from tests.idempotency.keys import keys
from tests.idempotency.processes import ROOT
from tests.support.database import Database, on

PROCESSES = 4
KEYS = 100_000
QUOTA = 1_000


@pytest.mark.faults
@pytest.mark.timeout(600)
@on("postgres18+psycopg")
async def test_the_quota_bounds_the_table_however_many_keys_several_processes_are_sent(
    database: Database, make: Make
) -> None:
    make()
    url = sync_url(database.url).render_as_string(hide_password=False)
    share = (url, str(KEYS // PROCESSES), str(QUOTA))

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(flood(*share)) for _ in range(PROCESSES)]

    claimed, refused = (sum(counts) for counts in zip(*(r.result() for r in running), strict=True))
    assert claimed + refused == KEYS
    # Each process cannot see what the others have not committed.
    assert QUOTA <= claimed <= QUOTA + (PROCESSES - 1) * AT_ONCE
    assert await keys(database) == claimed


async def flood(*arguments: str) -> tuple[int, int]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.idempotency.flood", *arguments,
        cwd=ROOT, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    said, _ = await process.communicate()
    assert process.returncode == 0
    claimed, refused = map(int, said.split())
    return claimed, refused
