"""How often a projector looks, what it says of looks that fail, and whose clock it goes by."""

import itertools
import logging
import time
from datetime import UTC, datetime, timedelta

import pytest

from pillarbox.clock import SystemClock
from pillarbox.projector.observer import Observer
from tests.delivery.shop import Shop
from tests.support.database import on
from tests.support.waiting import until

pytestmark = on("postgres18+psycopg")

UNTOLD = (
    "INSERT INTO outbox (occurred_at, shard_hash, id, event_type, topic, key, payload) "
    "SELECT now(), 3, gen_random_uuid(), 'Noted', 'orders', 'k', '{}'"
)
CLOCKS = [timedelta(hours=1), timedelta(hours=-1)]


class Pace(Observer):
    """Notes when the projector claims, and what failed."""

    def __init__(self) -> None:
        self.claims: list[float] = []
        self.failures: list[Exception] = []

    def claiming(self) -> None:
        self.claims.append(time.monotonic())

    def poll_failed(self, error: Exception) -> None:
        self.failures.append(error)

    @property
    def gaps(self) -> list[float]:
        return [later - before for before, later in itertools.pairwise(self.claims)]


async def test_it_looks_often_after_an_event_and_seldom_when_idle(shop: Shop) -> None:
    pace = Pace()
    shop.configured(sleep_busy=0.02, sleep_idle=2.0)

    async with shop.projecting(observer=pace):
        await shop.run(UNTOLD)

        async def arrived() -> bool:
            return len(shop.bus.messages) == 1

        await until(arrived, "the event that nobody told of")
        found_at = len(pace.gaps)

        async def idle() -> bool:
            return any(gap >= 1.5 for gap in pace.gaps[found_at:])

        await until(idle, "a wait of nearly sleep_idle")

    lately = list(itertools.takewhile(lambda gap: gap < 1.5, pace.gaps[found_at:]))
    assert len(lately) >= 10, "after the event it went on looking every sleep_busy"


async def test_what_fails_is_logged_counted_and_survived(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    pace = Pace()

    with caplog.at_level(logging.WARNING, logger="pillarbox.projector"):
        async with shop.projecting(observer=pace):
            await shop.sent(await shop.add("a"))
            await shop.run(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'pillarbox-projector'"
            )

            async def told() -> bool:
                return bool(pace.failures)

            await until(told, "a poll that failed")
            await shop.sent(await shop.add("b"))

    said = {record.message for record in caplog.records}
    assert said & {"claim_failed", "settle_failed", "renewal_failed", "look_failed"}


@pytest.mark.parametrize("wrong", CLOCKS, ids=["an hour fast", "an hour slow"])
async def test_what_is_due_is_due_by_the_clock_of_the_database(
    shop: Shop, wrong: timedelta, monkeypatch: pytest.MonkeyPatch
) -> None:
    (later,) = await shop.add("a", deliver_at=datetime.now(UTC) + timedelta(minutes=30))
    (soon,) = await shop.add("b", deliver_at=datetime.now(UTC) + timedelta(seconds=1))
    right = SystemClock.now
    monkeypatch.setattr(SystemClock, "now", lambda clock: right(clock) + wrong)

    async with shop.projecting():
        await shop.sent([soon])
        await shop.sent(await shop.add("c"))

    assert later not in shop.delivered()
    assert (await shop.standing())[later] == "NEW"
