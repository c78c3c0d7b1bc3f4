"""Units of work of a handler that only read: rolled back or failed, they take nothing along."""

from dataclasses import replace
from typing import Any

from sqlalchemy import column, select, table
from sqlalchemy.exc import DBAPIError

from pillarbox import SQLAlchemyUnitOfWork
from pillarbox.consumer.context import Context
from tests.consumer.rig import QUICK, Shop
from tests.support.database import on
from tests.support.orders import Order
from tests.uow.test_joining import place

pytestmark = on("postgres18+psycopg", "postgres18+asyncpg", "sqlite+aiosqlite")

ONE_TRY = replace(QUICK, lanes=1, max_attempts=1)


async def test_a_message_whose_effect_is_rolled_back_by_a_reader_is_not_acknowledged(
    shop: Shop,
) -> None:
    """The effect was lost, and the message counted as handled."""

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        async with SQLAlchemyUnitOfWork(shop.database.sessions) as reader:
            await reader.session.scalars(select(Order.id))
            await place(shop.database, ctx.envelope.event_id)
            await reader.rollback()

    for message_id in ("m0", "m1"):
        shop.send(message_id, key=message_id)
    await shop.loop(handler, ONE_TRY).drain()

    assert await shop.database.order_ids() == []
    assert await shop.count("inbox") == 0
    assert await shop.count("inbox_parked", "error_class = 'UnitOfWorkError'") == 2


async def test_a_handler_goes_on_after_a_select_that_failed_in_a_unit_of_work(shop: Shop) -> None:
    caught: list[str] = []

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        try:
            async with SQLAlchemyUnitOfWork(shop.database.sessions) as reader:
                await reader.session.execute(select(table("no_such_table", column("id"))))
        except DBAPIError as error:
            caught.append(str(error.orig))
        await place(shop.database, ctx.envelope.event_id)

    for message_id in ("m0", "m1"):
        shop.send(message_id, key=message_id)
    await shop.loop(handler, ONE_TRY).drain()

    assert await shop.database.order_ids() == ["m0", "m1"]
    assert shop.seen.outcomes == {"new": 2}
    assert len(caught) == 2
    assert all("no_such_table" in found for found in caught)
