"""The hook for events that give up: called at least once, and no danger to the projector."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pillarbox.bus.outcome import Refused
from pillarbox.projector.store import Failure, OutboxEvent
from tests.delivery.shop import Shop
from tests.support.database import on

pytestmark = on("postgres18+psycopg")

TOO_LARGE = Refused("too-large", "1 MB")


async def test_a_hook_is_called_again_when_the_process_died_before_the_commit(
    shop: Shop, tmp_path: Path
) -> None:
    bad = await shop.add("a", "b")
    told = tmp_path / "told"

    killed = drained(shop, told, "kill")
    before = await shop.standing()
    ended = drained(shop, told)

    assert (killed, ended) == (-signal.SIGKILL, 0)
    assert set(before.values()) == {"NEW"}
    assert set((await shop.standing()).values()) == {"DEAD"}
    assert sorted(told.read_text().splitlines()) == sorted(f"{each} too-large" for each in bad * 2)


async def test_an_event_that_was_alone_when_its_projector_died_for_the_last_time_is_dead(
    shop: Shop, tmp_path: Path
) -> None:
    await shop.add("a")
    told = tmp_path / "told"

    killed = drained(shop, told, "kill")
    ended = drained(shop, told)

    assert (killed, ended) == (-signal.SIGKILL, 0)
    assert set((await shop.standing()).values()) == {"DEAD"}
    assert len(told.read_text().splitlines()) == 2


def drained(shop: Shop, told: Path, *how: str, seconds: float = 60) -> int:
    """Drain the outbox to a bus that refuses everything; return the exit code."""
    url = shop.database.url.set(drivername="postgresql").render_as_string(hide_password=False)
    command = [sys.executable, "-m", "tests.delivery.dead_hook_process", url, str(told), *how]
    return subprocess.run(command, timeout=seconds, check=False).returncode


async def test_a_hook_that_raises_neither_keeps_the_event_nor_stops_the_projector(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    called: list[str] = []

    async def hook(event: OutboxEvent, failure: Failure) -> None:
        del failure
        called.append(event.event_id)
        raise OSError("nobody answers the telephone")

    bad = await shop.add("a", "b")
    good = await shop.add("c")
    shop.refuse(bad, TOO_LARGE)

    async with shop.configured(max_retry_attempts=1).projecting(dead_hook=hook):
        await shop.status(bad, "DEAD")
        await shop.sent([*good, *await shop.add("c")])

    assert sorted(called) == sorted(bad)
    failures = [record for record in caplog.records if record.message == "dead_hook_failed"]
    assert len(failures) == 2
    assert "nobody answers" in str(failures[0].exc_info)
