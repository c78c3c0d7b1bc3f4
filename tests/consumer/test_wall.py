"""Consuming behind the wall between tenants: each message inside its own, and what waits is found."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text

from pillarbox.bus.memory import MemoryMessageBus
from pillarbox.bus.subscription import SubscriptionRequest
from pillarbox.consumer.config import ConsumerConfig
from pillarbox.consumer.context import Context
from pillarbox.consumer.loop import ConsumerLoop
from pillarbox.consumer.named_tasks import task_of
from pillarbox.consumer.routes import Routes
from pillarbox.event.incoming import Incoming, ReadingRules
from tests.consumer.rig import QUICK
from tests.support.waiting import until
from tests.tenancy.wall import Wall, wall, walls

__all__ = ["wall", "walls"]

pytestmark = pytest.mark.parametrize("wall", ["postgres18+psycopg"], indirect=True)
TABLES = ("inbox", "inbox_attempt", "inbox_parked", "inbox_task", "consumer_tenant")


@pytest.fixture
async def empty(wall: Wall) -> AsyncIterator[Wall]:
    def clear() -> None:
        for table in TABLES:
            wall.admin.execute(f"DELETE FROM {table}".encode())

    clear()
    yield wall
    clear()


def consumer(
    wall: Wall,
    bus: MemoryMessageBus,
    handler: Any,
    config: ConsumerConfig,
    *,
    event_type: str = "OrderCreated",
    **tasks: Any,
) -> ConsumerLoop:
    routes = Routes(rules=ReadingRules(tenant_required=True))
    routes.add(event_type, handler)
    return ConsumerLoop(
        "payments",
        routes,
        bus.subscribe(SubscriptionRequest("payments", ("shop.order",))),
        wall.sessions,
        config,
        tasks={name: task_of(name, task) for name, task in tasks.items()},
        chance=random.Random(7),
    )


def send(bus: MemoryMessageBus, message_id: str, **headers: str) -> None:
    told = {"event_id": message_id, "event_type": "OrderCreated", **headers}
    bus.put(Incoming("shop.order", "k", told, b'{"n":1}', "application/json"))


async def test_each_message_is_handled_inside_its_tenant(empty: Wall) -> None:
    bus, seen = MemoryMessageBus(), []

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        del event
        said = await ctx.session.scalar(text("SELECT current_setting('app.tenant')"))
        seen.append((ctx.envelope.event_id, ctx.tenant_id, said))

    for tenant in ("acme", "other"):
        send(bus, "m1", tenant_id=tenant)
    await consumer(empty, bus, handler, QUICK).drain()

    assert sorted(seen) == [("m1", "acme", "acme"), ("m1", "other", "other")]
    assert sorted(empty.rows("SELECT tenant_id, message_id FROM inbox")) == [
        ("acme", "m1"),
        ("other", "m1"),
    ]


async def test_what_waits_and_what_is_left_to_do_is_found_by_another_process(empty: Wall) -> None:
    bus, done, mails = MemoryMessageBus(), [], []

    async def failing(event: dict[str, Any], ctx: Context) -> None:
        ctx.after_commit("mail", to=ctx.tenant_id)
        if ctx.envelope.event_id == "late":
            raise ValueError(f"not yet: {event}")

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        del event
        done.append((ctx.tenant_id, ctx.envelope.event_id))

    async def mail(to: str) -> None:
        mails.append(to)

    for tenant in ("acme", "other"):
        send(bus, "prompt", tenant_id=tenant)
        send(bus, "late", tenant_id=tenant)
    # On a slow machine it may fail more than once before it is left to the other.
    waiting = replace(
        QUICK, hold_limit=0.001, retry_delay=0.5, retry_delay_max=0.5, max_attempts=100
    )
    await consumer(empty, bus, failing, waiting).drain()

    other = consumer(empty, MemoryMessageBus(), handler, QUICK, mail=mail)

    async def all_done() -> bool:
        await other.drain()
        return len(done) == 2 and len(mails) == 2

    await until(all_done, "waiting messages and tasks of both tenants", limit=30)
    assert sorted(done) == [("acme", "late"), ("other", "late")]
    assert sorted(mails) == ["acme", "other"]


async def test_old_records_of_every_tenant_go_though_nobody_hears_of_them_any_more(
    empty: Wall,
) -> None:
    bus = MemoryMessageBus()

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        del event, ctx

    for tenant in ("acme", "other"):
        send(bus, "m1", tenant_id=tenant)
    await consumer(empty, bus, handler, QUICK).drain()
    empty.admin.execute(b"UPDATE inbox SET processed_at = now() - interval '31 days'")

    async def forgotten() -> bool:
        return empty.rows("SELECT message_id FROM inbox") == []

    later = consumer(empty, MemoryMessageBus(), handler, replace(QUICK, cleanup_every=0.01))
    async with asyncio.TaskGroup() as group:
        group.create_task(later.run_forever())
        await until(forgotten, "the records of both tenants are gone")
        later.stop()


async def test_a_redriven_message_that_can_be_read_by_now_is_handled_inside_its_tenant(
    empty: Wall,
) -> None:
    bus, seen = MemoryMessageBus(), []

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        said = await ctx.session.scalar(text("SELECT current_setting('app.tenant')"))
        seen.append((ctx.envelope.event_id, said, event["n"]))

    for tenant in ("acme", "other"):
        send(bus, f"of-{tenant}", tenant_id=tenant, event_type="NewKind")
    await consumer(empty, bus, handler, QUICK).drain()
    parked = empty.rows("SELECT tenant_id, reason FROM inbox_parked")
    empty.admin.execute(b"UPDATE inbox_parked SET state = 'waiting', due_at = now()")
    newer = consumer(empty, MemoryMessageBus(), handler, QUICK, event_type="NewKind")
    await newer.drain()

    assert parked == [("default", "unknown-type")] * 2
    assert sorted(seen) == [("of-acme", "acme", 1), ("of-other", "other", 1)]
    assert empty.rows("SELECT * FROM inbox_parked") == []
    assert sorted(empty.rows("SELECT tenant_id, message_id FROM inbox")) == [
        ("acme", "of-acme"),
        ("other", "of-other"),
    ]


async def test_a_message_without_a_tenant_is_parked_where_it_harms_nobody(empty: Wall) -> None:
    bus = MemoryMessageBus()

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        raise AssertionError(f"called with {event} {ctx}")

    send(bus, "m1")
    await consumer(empty, bus, handler, QUICK).drain()

    assert empty.rows("SELECT tenant_id, reason FROM inbox_parked") == [
        ("default", "tenant-required")
    ]
