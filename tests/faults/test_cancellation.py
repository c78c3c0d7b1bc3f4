"""Cancelled at any await of any of its tasks, a projector gives up everything that it held."""

import asyncio
import gc
from collections.abc import AsyncIterator
from datetime import timedelta
from itertools import count

import pytest

from pillarbox import OutboxProjector
from pillarbox.projector.observer import Observer
from pillarbox.projector.postgres.store import PostgresStore
from tests.delivery.shop import TABLES, Shop
from tests.support.cancelling import CancelledAnywhere
from tests.support.database import Database, database, databases, on
from tests.support.waiting import until

__all__ = ["database", "databases"]

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300), on("postgres18+psycopg")]

HELD = "SELECT count(member_id) FROM outbox_lease"
MEMBERS = "SELECT count(*) FROM outbox_member"
_THEIRS = "FROM pg_stat_activity WHERE application_name = 'pillarbox-projector'"
CONNECTIONS = f"SELECT count(*) {_THEIRS} AND datname = current_database()"
END_CONNECTIONS = f"SELECT pg_terminate_backend(pid) {_THEIRS}"


@pytest.fixture
async def shop(database: Database) -> AsyncIterator[Shop]:
    service = Shop(database)
    for table in TABLES:
        await service.run(f"DELETE FROM {table}")
    yield service
    for table in TABLES:
        await service.run(f"DELETE FROM {table}")


class StopsWhenSent(Observer):
    """Ends a run when it has delivered."""

    projector: OutboxProjector | None = None

    def settled(self, *, sent: int, failed: int, dead: int, took: timedelta) -> None:
        del failed, dead, took
        if sent and self.projector is not None:
            self.projector.stop()


@pytest.mark.parametrize("way", ["run_once", "run_forever"])
async def test_nothing_is_left_behind_and_the_next_projector_delivers_all(
    shop: Shop, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave, left_at = PostgresStore.leave, list[int]()

    async def leaving(store: PostgresStore) -> None:
        left_at.append(driven.suspensions)
        await leave(store)

    monkeypatch.setattr(PostgresStore, "leave", leaving)
    ids = await shop.add("a", "a", "b")
    left: dict[int, list[str]] = {}
    for step in count(1):
        observer = StopsWhenSent()
        projector = shop.projector(observer=observer)
        observer.projector = projector if way == "run_forever" else None
        driven = CancelledAnywhere(step)
        left_at.clear()

        cancelled = await driven.run(getattr(projector, way)())
        del projector, observer

        found = await what_is_left(shop)
        if not cancelled or any(step > begun for begun in left_at):
            break  # from here on it was cancelled while it was leaving anyway
        left |= {step: found} if found else {}
        ids += await shop.add("a")

    assert step > 30
    assert left == {}
    await shop.projector().drain()
    assert set((await shop.standing()).values()) == {"SENT"}
    first_copies = dict.fromkeys(shop.delivered())
    assert [one for one in first_copies if one != ids[2]] == [one for one in ids if one != ids[2]]


async def what_is_left(shop: Shop) -> list[str]:
    """Name what a projector has left; leases are freed for the next one."""
    left = [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    if await shop.database.scalar(HELD):
        left.append("leases")
    if await shop.database.scalar(MEMBERS):
        left.append("a member")

    gc.collect()  # a connection that was cancelled while it was being made

    async def disconnected() -> bool:
        return bool(await shop.database.scalar(CONNECTIONS) == 0)

    try:
        await until(disconnected, "the end of all connections", 5)
    except AssertionError:
        left.append("a connection")
        await shop.run(END_CONNECTIONS)
    if left:
        await shop.run("UPDATE outbox_lease SET member_id = NULL, expires_at = NULL")
        await shop.run("DELETE FROM outbox_member")
    return left
