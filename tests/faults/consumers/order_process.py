"""An order service: place orders in units of work until SIGTERM.

    python -m tests.faults.consumers.order_process --database URL --topic shop.order --journal FILE

One order in ten is rolled back on purpose. The journal has a line for each order whose commit was
acknowledged; of the others the database tells what became of them.
"""

import argparse
import asyncio
import json
import random
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TextIO
from uuid import uuid4

from sqlalchemy import String, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from pillarbox import AggregateRoot, CommitUnknown, DomainEvent, Pillarbox
from tests.faults.orphan import end_with_parent

CUSTOMERS: Final = 6
_WRITERS: Final = 2
_ROLLED_BACK: Final = 0.1
_DRAW: Final = text(
    "INSERT INTO customer (customer, n) VALUES (:customer, 1) "
    "ON CONFLICT (customer) DO UPDATE SET n = customer.n + 1 RETURNING n"
)


class Base(DeclarativeBase):
    """The tables of the shop."""


class OrderPlaced(DomainEvent):
    """An order waits for its payment; the payment service books its amount."""

    order_id: str
    n: int
    amount: int


class Order(AggregateRoot, Base):
    """An order, with the id of the event that tells of it."""

    __tablename__ = "customer_order"
    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    customer: Mapped[str]
    n: Mapped[int]
    total: Mapped[int]
    message_id: Mapped[str]
    version: Mapped[int] = mapped_column()
    __mapper_args__ = {"version_id_col": version}  # noqa: RUF012 - the name is SQLAlchemy's

    def place(self, topic: str) -> None:
        event = OrderPlaced(self.id, self.n, self.total)
        self.message_id = str(self.add_event(event, key=self.customer, topic=topic))


class Regretted(Exception):
    """The customer did not mean it."""


async def place(
    box: Pillarbox, options: argparse.Namespace, chance: random.Random, journal: TextIO
) -> None:
    """Place an order, or regret it."""
    customer = f"customer-{chance.randrange(CUSTOMERS)}"
    async with box.unit_of_work() as uow:
        n = await uow.session.scalar(_DRAW, {"customer": customer})
        order = Order(id=uuid4().hex, customer=customer, n=n, total=chance.randint(1, 1_000))
        order.place(options.topic)
        await uow.repository(Order).save(order)
        if chance.random() < _ROLLED_BACK:
            raise Regretted
        await uow.commit()
    journal.write(json.dumps({"message_id": order.message_id}) + "\n")


async def run(options: argparse.Namespace) -> None:
    """Place orders until SIGTERM, through restarts of the database."""
    end_with_parent()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    box = Pillarbox(options.database, service="shop", environ={})

    async def write(chance: random.Random, journal: TextIO) -> None:
        while not stop.is_set():
            with suppress(Regretted, CommitUnknown, DBAPIError, OSError):
                await place(box, options, chance, journal)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _WRITERS / options.rate)

    with options.journal.open("a", encoding="utf-8", buffering=1) as journal:
        async with asyncio.TaskGroup() as group:
            for number in range(_WRITERS):
                group.create_task(write(random.Random(f"{options.seed}/{number}"), journal))
    await box.engine.dispose()


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.consumers.order_process")
    parser.add_argument("--database", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--journal", required=True, type=Path)
    parser.add_argument("--rate", type=float, default=8.0, help="orders a second")
    parser.add_argument("--seed", type=int, default=1)
    asyncio.run(run(parser.parse_args(arguments)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
