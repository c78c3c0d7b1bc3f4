import asyncio

from sqlalchemy import select, text

from pillarbox import DomainEvent, OutboxRecord, Pillarbox, SqlAlchemyOutbox


class OrderPlaced(DomainEvent):
    aggregate_type = "order"
    order_id: str
    total: int


async def main() -> None:
    box = Pillarbox.from_env(service="orders")
    async with box.running(), box.session_factory() as session:
        await session.execute(text("CREATE TABLE IF NOT EXISTS sales (id text, total int)"))
        await session.execute(text("INSERT INTO sales VALUES ('o-1', 42)"))
        await SqlAlchemyOutbox(session).add(OrderPlaced("o-1", 42), key="o-1")
        await session.commit()  # the order and its event, or neither
        for event in await session.scalars(select(OutboxRecord)):
            print(event.status, event.topic, event.key, event.event_type, event.payload)


asyncio.run(main())
