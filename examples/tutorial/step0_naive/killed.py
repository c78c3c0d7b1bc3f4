"""Place an order, in a process that is killed between its two writes."""

import asyncio
import os
import signal

from sqlalchemy import event

from examples.tutorial.step0_naive.orders import Order, commit_then_publish
from examples.tutorial.step0_naive.servers import servers


def power_cut(_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)  # no `except` and no `finally` runs after this


async def main() -> None:
    async with servers() as (session, broker):
        event.listen(session.sync_session, "after_commit", power_cut)
        await commit_then_publish(session, broker, Order(id="o-2", total=42))


if __name__ == "__main__":
    asyncio.run(main())
