"""Messages that wait and name another tenant by now go there in the order of their key."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update

from pillarbox.clock import SYSTEM_CLOCK
from pillarbox.consumer import returning
from pillarbox.consumer.aside import move
from pillarbox.consumer.context import Context
from pillarbox.consumer.signals import Retry
from pillarbox.consumer.transactions import DatabaseAway
from pillarbox.event.incoming import ReadingRules
from pillarbox.schema.tables import inbox_parked
from tests.consumer.rig import Shop
from tests.support.database import on
from tests.support.waiting import until

pytestmark = on("postgres18+psycopg", "sqlite+aiosqlite")

OF_ACME = ReadingRules(proven_tenant=lambda _: "acme")


async def wait_long(event: dict[str, Any], ctx: Context) -> None:
    del event, ctx
    raise Retry(after=timedelta(hours=1))


async def wait_and_are_due(shop: Shop, *message_ids: str) -> None:
    """Leave messages in the table, read as those of no tenant."""
    for message_id in message_ids:
        shop.send(message_id)
    await shop.loop(wait_long).drain()
    due = inbox_parked.c.due_at
    async with shop.database.engine.begin() as connection:
        await connection.execute(
            update(inbox_parked).where(due.is_not(None)).values(due_at=SYSTEM_CLOCK.now())
        )


async def test_a_new_message_does_not_pass_those_that_go_to_its_tenant(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They went one by one, and between two of them it took effect, or came to stand before the next."""
    await wait_and_are_due(shop, "m0", "m1", "m2")
    moves = list[int]()

    async def move_and_receive(*arguments: Any) -> bool:
        moved = await move(*arguments)
        moves.append(len(arguments[1]))
        if len(moves) == 1:
            shop.send("m3")
            await shop.loop(rules=OF_ACME).drain()
        return moved

    monkeypatch.setattr(returning, "move", move_and_receive)

    await shop.loop(rules=OF_ACME).drain()

    assert await shop.effects() == ["m0", "m1", "m2", "m3"]
    assert moves == [3]
    assert await shop.count("inbox", "tenant_id = 'acme'") == 4
    assert await shop.count("inbox_parked") == 0


async def test_those_behind_that_are_of_another_tenant_still_go_their_own_way(shop: Shop) -> None:
    await wait_and_are_due(shop, "m0", "m1", "m2")
    some_of_acme = ReadingRules(
        proven_tenant=lambda found: "acme" if found.headers["event_id"] != "m1" else "other"
    )

    await shop.loop(rules=some_of_acme).drain()

    assert await shop.effects() == ["m0", "m1", "m2"]
    assert await shop.count("inbox", "tenant_id = 'acme'") == 2
    assert await shop.count("inbox", "tenant_id = 'other' AND message_id = 'm1'") == 1
    assert await shop.count("inbox_parked") == 0


async def test_messages_that_had_moved_when_the_database_went_away_take_effect_once(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their rows are left where they came from, and are moved again."""
    await wait_and_are_due(shop, "m0", "m1", "m2")
    moves = list[int]()

    async def move_and_lose_the_database(*arguments: Any) -> bool:
        moved = await move(*arguments)
        moves.append(len(arguments[1]))
        if len(moves) == 1:
            raise DatabaseAway(ConnectionError("in this test"))
        return moved

    monkeypatch.setattr(returning, "move", move_and_lose_the_database)

    async with shop.running(shop.loop(rules=OF_ACME)):
        await until(lambda: shop.effects_are(3), "they have taken effect")
        await until(lambda: _none_waits(shop), "nothing is left")

    assert moves == [3, 3]
    assert await shop.effects() == ["m0", "m1", "m2"]


async def _none_waits(shop: Shop) -> bool:
    return await shop.count("inbox_parked") == 0
