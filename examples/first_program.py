import asyncio
import os

import nats

from pillarbox import DomainEvent, Pillarbox, SqlAlchemyOutbox


class OrderPlaced(DomainEvent):
    aggregate_type = "order"
    order_id: str


async def main() -> None:
    box = Pillarbox.from_env(service="orders")
    async with box.running(projector=True), box.session_factory() as session:
        await SqlAlchemyOutbox(session).add(OrderPlaced("o-1"), key="o-1")
        await session.commit()  # together with whatever else the session has done
        await box.bus.apply(["orders.order"])
        async with await nats.connect(os.environ["PILLARBOX_BUS_URL"]) as broker:
            message = await (await broker.jetstream().subscribe("orders.order")).next_msg(5)
            print(message.subject, (message.headers or {})["event_type"], message.data.decode())


asyncio.run(main())
