"""A projector that is cancelled while it leaves."""

import asyncio

import pytest

from pillarbox.projector.postgres.store import PostgresStore
from tests.delivery.shop import Shop
from tests.support.database import on

pytestmark = on("postgres18+psycopg")


async def test_a_cancellation_while_leases_are_given_back_keeps_none_of_them(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave = PostgresStore.leave

    async def cancelled(store: PostgresStore) -> None:
        running.cancel()
        await leave(store)

    monkeypatch.setattr(PostgresStore, "leave", cancelled)
    running = asyncio.create_task(shop.projector().run_once())

    with pytest.raises(asyncio.CancelledError):
        await running
    assert await shop.database.scalar("SELECT count(member_id) FROM outbox_lease") == 0
    assert await shop.database.scalar("SELECT count(*) FROM outbox_member") == 0
