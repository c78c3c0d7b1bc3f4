"""Place two orders, pay one, read the list; then lose the list and build it again."""

import asyncio
from uuid import uuid4

from sqlalchemy import delete

from examples.tutorial.step4_read_model.app import OrderList, OrderListRow, box, order_list
from examples.tutorial.step4_read_model.orders import create_tables, pay_order, place_order
from pillarbox import ReadDAO


async def main() -> None:
    cheap, dear = str(uuid4()), str(uuid4())
    async with box.running():
        await create_tables(box)
        await place_order(box, cheap, 42)
        await place_order(box, dear, 1_000)
        await pay_order(box, cheap)

        await order_list.drain()  # `running(read_models=True)` goes on until the end
        print("the list:", await row(cheap), "and", await row(dear))

        async with box.engine.begin() as connection:
            await connection.execute(delete(OrderListRow))
        print("lost:", await row(cheap), "and", await row(dear))

        await order_list.rebuild()
        print("built again:", await row(cheap), "and", await row(dear))


async def row(order_id: str) -> str:
    async with box.session_factory() as session:
        found = await ReadDAO(session, OrderList).get(order_id)
    return "nothing" if found is None else f"{found['total']} {found['status']}"


if __name__ == "__main__":
    asyncio.run(main())
