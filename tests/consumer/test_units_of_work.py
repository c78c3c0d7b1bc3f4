"""Units of work of handlers: those that only read take nothing along; what others armed is told."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import column, select, table
from sqlalchemy.exc import DBAPIError

from pillarbox import SQLAlchemyUnitOfWork
from pillarbox.consumer.context import Context
from pillarbox.outbox.wakeup import wakeup_of
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


@pytest.mark.parametrize("sender", ["m0", "m1"])
async def test_projectors_are_told_of_an_event_whichever_handler_of_a_batch_raised_it(
    shop: Shop, sender: str
) -> None:
    """They were told only if the last one had."""
    with wakeup_of(shop.database.engine).listen() as listener:

        async def handler(event: dict[str, Any], ctx: Context) -> None:
            if ctx.envelope.event_id == sender:
                await place(shop.database, sender)
                await asyncio.wait_for(listener.wait(), 30)  # the early one, which finds nothing

        for message_id in ("m0", "m1"):
            shop.send(message_id, key=message_id)
        await shop.loop(handler, ONE_TRY).drain()

        await asyncio.wait_for(listener.wait(), 5)

    assert await shop.database.event_types() == ["OrderPlaced"]
