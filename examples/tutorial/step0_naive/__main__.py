"""Place an order well, one in a process that is killed, and one that the database refuses."""

import asyncio
import sys

from sqlalchemy.exc import IntegrityError

from examples.tutorial.step0_naive.orders import Order, commit_then_publish, publish_then_commit
from examples.tutorial.step0_naive.servers import begin_anew, orders_and_events, servers

WHAT_HAPPENS = {
    "o-1": "nothing goes wrong",
    "o-2": "killed after the commit",
    "o-3": "refused after the publish",
}


async def main() -> None:
    async with servers() as (session, broker):
        await begin_anew(session, broker)

        await commit_then_publish(session, broker, Order(id="o-1", total=42))

        killed = "examples.tutorial.step0_naive.killed"
        await (await asyncio.create_subprocess_exec(sys.executable, "-m", killed)).wait()

        try:
            await publish_then_commit(session, broker, Order(id="o-3", total=0))
        except IntegrityError:
            await session.rollback()  # the order is gone; the event is not

        orders, events = await orders_and_events(session, broker)
    for order_id, what in WHAT_HAPPENS.items():
        saved = "order saved" if order_id in orders else "no order"
        sent = "event sent" if order_id in events else "no event"
        print(f"{order_id} {what}: {saved}, {sent}")


if __name__ == "__main__":
    asyncio.run(main())
