"""The same three orders as before, recorded."""

import asyncio
import sys
from contextlib import suppress
from uuid import uuid4

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from examples.tutorial.step1_record.orders import Order, create_tables, place_order
from pillarbox import OutboxRecord, Pillarbox


async def main() -> None:
    well, killed, refused = (str(uuid4()) for _ in range(3))
    box = Pillarbox.from_env(service="orders")
    async with box.running():
        await create_tables(box)

        await place_order(box, well, 42)

        program = ("-m", "examples.tutorial.step1_record.killed", killed)
        await (await asyncio.create_subprocess_exec(sys.executable, *program)).wait()

        with suppress(IntegrityError):
            await place_order(box, refused, 0)

        print("nothing goes wrong:", await found(box, well))
        print("killed after the commit:", await found(box, killed))
        print("refused by the database:", await found(box, refused))


async def found(box: Pillarbox, order_id: str) -> str:
    async with box.session_factory() as session:
        order = await session.get(Order, order_id)
        row = await session.scalar(select(OutboxRecord).where(OutboxRecord.key == order_id))
    saved = "no order" if order is None else "order saved"
    recorded = "no event" if row is None else f"{row.event_type} recorded for {row.topic}"
    return f"{saved}, {recorded}"


if __name__ == "__main__":
    asyncio.run(main())
