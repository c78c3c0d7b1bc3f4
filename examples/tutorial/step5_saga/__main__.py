"""Place an order that can be paid and one that cannot, and wait for the end of both."""

import asyncio
from uuid import uuid4

from examples.tutorial.step5_saga.app import box
from examples.tutorial.step5_saga.broker import last_word
from examples.tutorial.step5_saga.messages import TOPICS
from examples.tutorial.step5_saga.orders import create_tables, place_order
from examples.tutorial.step5_saga.participants import Reservation


async def main() -> None:
    cheap, dear = str(uuid4()), str(uuid4())
    await create_tables(box)
    await box.bus.apply(TOPICS)
    async with box.running(projector=True, consumers=True):
        await place_order(box, cheap, 42)
        await place_order(box, dear, 1_000)

        print("42:", await last_word(cheap), "and", await stock(cheap))
        print("1000:", await last_word(dear), "and", await stock(dear))


async def stock(order_id: str) -> str:
    async with box.session_factory() as session:
        found = await session.get(Reservation, order_id)
    return "nothing reserved" if found is None else "stock reserved"


if __name__ == "__main__":
    asyncio.run(main())
