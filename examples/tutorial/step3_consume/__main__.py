"""Deliver an event, send its message once more, and count the payments."""

import asyncio
from uuid import uuid4

from sqlalchemy import func, select

from examples.tutorial.step3_consume.app import Payment, box, payments
from examples.tutorial.step3_consume.broker import send_again
from examples.tutorial.step3_consume.orders import create_tables, place_order


async def main() -> None:
    order_id = str(uuid4())
    async with box.running():
        await create_tables(box)
        await box.bus.apply(["orders.order"])
        await place_order(box, order_id, 42)
        await box.projector().drain()
        print("messages:", await send_again(order_id))

        await payments.drain()  # `running(consumers=True)` goes on until the end
        async with box.session_factory() as session:
            paid = select(func.count()).where(Payment.order_id == order_id)
            print("payments:", await session.scalar(paid))


if __name__ == "__main__":
    asyncio.run(main())
