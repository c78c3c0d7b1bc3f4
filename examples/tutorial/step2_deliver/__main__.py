"""Record two events while nobody delivers, then let a projector deliver them."""

import asyncio
from uuid import uuid4

from sqlalchemy import text

from examples.tutorial.step2_deliver.app import box
from examples.tutorial.step2_deliver.broker import received
from examples.tutorial.step2_deliver.orders import create_tables, pay_order, place_order


async def main() -> None:
    order_id = str(uuid4())
    async with box.running():
        await create_tables(box)
        await place_order(box, order_id, 42)
        await pay_order(box, order_id)
        print("before:", await statuses(order_id))

        await box.bus.apply(["orders.order"])
        await box.projector().drain()  # `running(projector=True)` goes on until the end
        print("after:", await statuses(order_id))

        for event in await received(order_id, 2):
            print("the broker has", event)


async def statuses(order_id: str) -> str:
    async with box.engine.connect() as connection:
        rows = await connection.execute(
            text("SELECT event_type, status FROM outbox_live WHERE key = :key ORDER BY seq"),
            {"key": order_id},
        )
        return ", ".join(f"{row.event_type} {row.status}" for row in rows)


if __name__ == "__main__":
    asyncio.run(main())
