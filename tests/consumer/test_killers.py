"""A message that kills the process is found and parked; the others are unharmed."""

import asyncio
import signal
import sys

from tests.consumer.rig import Shop
from tests.support.database import on

pytestmark = on("postgres18+psycopg", "sqlite+aiosqlite")


async def run_until_it_lives(shop: Shop, max_crashes: int) -> int:
    """Start the process as a supervisor does; return how often it died."""
    url = shop.database.url.render_as_string(hide_password=False)
    for deaths in range(10):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.consumer.killer_process", url, str(max_crashes)
        )
        code = await asyncio.wait_for(process.wait(), 30)
        if code == 0:
            return deaths
        assert code == -signal.SIGKILL
    raise AssertionError("the message killed ten processes and was not parked")


async def test_a_message_that_kills_its_process_is_parked(shop: Shop) -> None:
    max_crashes = 3 if shop.database.is_postgres else 2
    deaths = await run_until_it_lives(shop, max_crashes)

    assert deaths == max_crashes
    assert sorted(await shop.effects()) == ["m0", "m1", "m2", "m3"]
    assert await shop.count("inbox_parked", "message_id = 'killer' AND reason = 'crashed'") == 1
    assert await shop.count("inbox_parked") == 1
    assert await shop.count("inbox_attempt") == 0
