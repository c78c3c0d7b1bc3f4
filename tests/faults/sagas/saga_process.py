"""An order service with its saga, and participants that lose, double and delay their replies.

python -m tests.faults.sagas.saga_process DATABASE BUS SERVICE SEED
"""

import asyncio
import random
import sys
from datetime import UTC, datetime, timedelta

from sqlalchemy import text

from pillarbox import Context, DomainEvent, Drop, Pillarbox, Saga, Why, step
from pillarbox.bus.nats import NatsMessageBus
from pillarbox.consumer.config import ConsumerConfig

LATE = timedelta(seconds=0.4)
# 0.5 s doubled so often that a busy machine alone makes no saga give up; what a killed process had
# taken comes again well within that, also when the next one is killed with it.
PATIENCE = 5
ACK_WAIT = timedelta(seconds=2)
REFUSED, SILENT = "3", "7"  # how the ids of orders end that are refused, or never replied to
# Its processes are killed from outside: a message that was alone in hand twice is not to blame.
CONFIG = ConsumerConfig(lanes=4, look_every=0.05, retry_delay=0.05, max_crashes=100)
STATUS = text("UPDATE orders SET status = :status, ends = ends + 1 WHERE id = :id")


class OrderCreated(DomainEvent):
    aggregate_type = "order"
    order_id: str


class Reserve(DomainEvent):
    aggregate_type = "command"
    order_id: str


class Release(DomainEvent):
    aggregate_type = "command"
    order_id: str


class Reserved(DomainEvent):
    aggregate_type = "reply"
    order_id: str


class Released(DomainEvent):
    aggregate_type = "reply"
    order_id: str


class Charge(DomainEvent):
    aggregate_type = "command"
    order_id: str


class Paid(DomainEvent):
    aggregate_type = "reply"
    order_id: str


class Refused(DomainEvent):
    aggregate_type = "reply"
    order_id: str


class PlaceOrder(Saga, name="place-order", version=1, starts_on=OrderCreated):
    """Reserve, then charge; every message may be sent again."""

    reserve = step(
        send=lambda o: Reserve(o.order_id),
        ok=Reserved,
        undo=lambda o: Release(o.order_id),
        undone=Released,
        timeout=timedelta(seconds=0.5),
        retries=PATIENCE,
        undo_timeout=timedelta(seconds=0.5),
        undo_retries=50,
    )
    charge = step(
        send=lambda o: Charge(o.order_id),
        ok=Paid,
        fail=Refused,
        timeout=timedelta(seconds=0.5),
        retries=PATIENCE,
    )

    async def completed(self, start: OrderCreated, ctx: Context) -> None:
        await ctx.session.execute(STATUS, {"status": "CONFIRMED", "id": start.order_id})

    async def compensated(self, start: OrderCreated, ctx: Context, why: Why) -> None:
        del why
        await ctx.session.execute(STATUS, {"status": "REJECTED", "id": start.order_id})


def participants(box: Pillarbox, chance: random.Random) -> None:
    """Reply once, twice, late or not at all."""
    shop = box.consumer("participants", [f"{box.settings.service}.command"], config=CONFIG)

    async def reply(ctx: Context, event: DomainEvent) -> None:
        fate = chance.random()
        if fate < 0.15:
            return  # the effect stands, and the reply is lost
        late = datetime.now(UTC) + LATE if fate < 0.3 else None
        await ctx.outbox.add(event, deliver_at=late)
        if fate > 0.85:
            await ctx.outbox.add(event)

    @shop.on(Reserve)
    async def reserve(event: Reserve, ctx: Context) -> None:
        if chance.random() < 0.05:
            raise Drop("the participant is down")
        done = text("INSERT INTO stock (id) VALUES (:id) ON CONFLICT DO NOTHING")
        await ctx.session.execute(done, {"id": event.order_id})
        await reply(ctx, Reserved(event.order_id))

    @shop.on(Release)
    async def release(event: Release, ctx: Context) -> None:
        gone = text("DELETE FROM stock WHERE id = :id")
        await ctx.session.execute(gone, {"id": event.order_id})
        await reply(ctx, Released(event.order_id))

    @shop.on(Charge)
    async def charge(event: Charge, ctx: Context) -> None:
        if not event.order_id.endswith(SILENT):
            refused = event.order_id.endswith(REFUSED)
            await reply(ctx, (Refused if refused else Paid)(event.order_id))


async def serve(database: str, bus: str, service: str, seed: str) -> None:
    """Run projector, saga and participants until somebody kills the process."""
    made = NatsMessageBus(bus, ack_wait=ACK_WAIT)
    box = Pillarbox(database, made, service=service, environ={})
    box.saga(PlaceOrder, config=CONFIG)
    participants(box, random.Random(seed))
    async with box.running(projector=True, consumers=True):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
