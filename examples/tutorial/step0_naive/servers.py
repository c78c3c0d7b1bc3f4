"""Connections to the two servers, and what each of them knows."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import nats
from nats.js import JetStreamContext
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from examples.tutorial.step0_naive.orders import SUBJECT, Base, Order

STREAM = "naive"


@asynccontextmanager
async def servers() -> AsyncIterator[tuple[AsyncSession, JetStreamContext]]:
    """Connect to PostgreSQL and NATS."""
    url = os.environ["PILLARBOX_DATABASE_URL"].replace("postgresql:", "postgresql+psycopg:")
    engine = create_async_engine(url)
    async with await nats.connect(os.environ["PILLARBOX_BUS_URL"]) as broker:
        async with AsyncSession(engine, expire_on_commit=False) as session:
            yield session, broker.jetstream()
        await engine.dispose()


async def begin_anew(session: AsyncSession, broker: JetStreamContext) -> None:
    """Make the table and the stream, both empty."""
    connection = await session.connection()
    await connection.run_sync(Base.metadata.drop_all)
    await connection.run_sync(Base.metadata.create_all)
    await session.commit()
    await broker.add_stream(name=STREAM, subjects=[SUBJECT])
    await broker.purge_stream(STREAM)


async def orders_and_events(
    session: AsyncSession, broker: JetStreamContext
) -> tuple[set[str], set[str]]:
    """Return the orders of the database, and those that the broker has heard of."""
    orders = set(await session.scalars(select(Order.id)))
    count = (await broker.stream_info(STREAM)).state.messages
    messages = await broker.subscribe(SUBJECT)
    return orders, {(await messages.next_msg()).data.decode() for _ in range(count)}
