"""A message finds its handler, as the event that the handler wants, or is told why not."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox import MessageEnvelope, OutboxRecord
from pillarbox.consumer.context import Context, SyncContext
from pillarbox.consumer.routes import Ignored, Prepared, Routes
from pillarbox.consumer.signals import Drop, Park, Retry, Signal
from pillarbox.errors import InvalidConfig
from pillarbox.event.context import current_tenant
from pillarbox.event.incoming import Incoming, ReadingRules
from tests.consumer.handling import (
    Bill,
    OrderCreated,
    as_bill,
    context,
    got,
    message,
    nothing_got,
    on_sqlite,
    prepared,
    refusal,
    session,
)
from tests.support.database import Database
from tests.support.orders import Noted, Order

__all__ = ["nothing_got", "session"]

TRACE = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"


class PydanticBill(BaseModel):
    order_id: str


async def as_event(event: OrderCreated, ctx: Context) -> None:
    got.append((event, ctx))


async def context_first(ctx: Context, event: PydanticBill) -> None:
    got.append(event)


async def as_dict(event: dict[str, Any], ctx: Context) -> None:
    got.append(event)


async def without_annotations(event, ctx):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - that is the point
    got.append(event)


async def as_envelope(event: MessageEnvelope, ctx: Context) -> None:
    got.append(event)


async def as_bytes(event: bytes, ctx: Context) -> None:
    got.append(event)


async def context_only(ctx: Context) -> None:
    got.append(ctx.envelope.payload)


class Handling:
    async def __call__(self, event: Bill, _ctx: Context) -> None:
        got.append(event)

    async def method(self, event: Bill, _ctx: Context) -> None:
        got.append(event)


FIELDS = {"order_id": "o-1", "total": "9.90"}


@on_sqlite
@pytest.mark.parametrize(
    ("handler", "expected"),
    [
        (as_bill, Bill("o-1")),
        (context_first, PydanticBill(order_id="o-1")),
        (as_dict, FIELDS),
        (without_annotations, FIELDS),
        (as_bytes, b'{"order_id":"o-1","total":"9.90"}'),
        (context_only, FIELDS),
        (Handling(), Bill("o-1")),
        (Handling().method, Bill("o-1")),
    ],
)
async def test_a_handler_gets_what_its_annotation_names(
    session: AsyncSession, handler: Any, expected: object
) -> None:
    routes = Routes()
    routes.add("OrderCreated", handler)

    found = prepared(routes, message())
    await found.handler(context(found.envelope, session))

    assert got == [expected]


@on_sqlite
async def test_a_handler_gets_the_event_and_the_context(session: AsyncSession) -> None:
    routes = Routes()
    routes.add("OrderCreated", as_event)
    found = prepared(routes, message())
    ctx = context(found.envelope, session)

    await found.handler(ctx)

    assert got == [(OrderCreated("o-1", Decimal("9.90")), ctx)]
    assert found.envelope.event_id == "e-1"


@on_sqlite
async def test_a_handler_that_wants_the_envelope_gets_it(session: AsyncSession) -> None:
    routes = Routes()
    routes.add("OrderCreated", as_envelope)
    found = prepared(routes, message())

    await found.handler(context(found.envelope, session))

    assert got == [found.envelope]


def plainly(event: OrderCreated, ctx: SyncContext) -> None:
    ctx.session.add(Order(id=event.order_id, total=int(event.total)))
    ctx.session.flush()
    ctx.outbox.add(Noted("paid"))
    got.append(ctx.session.get(Order, event.order_id))


@on_sqlite
async def test_a_plain_function_runs_in_this_transaction(
    session: AsyncSession, database: Database
) -> None:
    routes = Routes()
    routes.add("OrderCreated", plainly)
    found = prepared(routes, message())

    await found.handler(context(found.envelope, session))
    before = await database.order_ids()
    await session.commit()

    assert before == []
    assert await database.order_ids() == ["o-1"]
    assert await database.event_types() == ["Noted"]


@on_sqlite
@pytest.mark.parametrize("signal", [Retry(timedelta(seconds=5)), Park("odd"), Drop("known")])
async def test_a_signal_is_raised_whether_it_is_raised_or_returned(
    session: AsyncSession, signal: Signal
) -> None:
    async def returns(event: Bill) -> Signal:
        return signal

    async def raises(event: Bill) -> None:
        raise signal

    def returns_plainly(event: Bill) -> Signal:
        return signal

    functions: list[Any] = [returns, raises, returns_plainly]
    for function in functions:
        routes = Routes()
        routes.add("OrderCreated", function)
        found = prepared(routes, message())
        with pytest.raises(type(signal)) as caught:
            await found.handler(context(found.envelope, session))
        assert caught.value is signal


async def records(event: Bill, ctx: Context) -> None:
    await ctx.outbox.add(Noted("paid"))
    got.append(current_tenant())


@on_sqlite
async def test_what_a_handler_raises_belongs_to_the_message(
    session: AsyncSession, database: Database
) -> None:
    routes = Routes()
    routes.add("OrderCreated", records)
    found = prepared(routes, message(tenant_id="acme", traceparent=TRACE, correlationid="c-1"))

    await found.handler(context(found.envelope, session))
    await session.commit()

    [record] = await database.events()
    assert record.tenant_id == "acme"
    assert record.event_metadata == {
        "correlationid": "c-1",
        "causationid": "e-1",
        "traceparent": TRACE,
    }
    assert got == ["acme"]
    assert current_tenant() is None


@on_sqlite
async def test_a_trace_and_an_id_that_no_header_can_carry_are_left_out(
    session: AsyncSession, database: Database
) -> None:
    routes = Routes()
    routes.add("OrderCreated", records)
    found = prepared(routes, message(traceparent="nonsense", event_id="é" * 400))

    await found.handler(context(found.envelope, session))
    await session.commit()

    async with database.sessions() as reader:
        assert (await reader.scalars(select(OutboxRecord.event_metadata))).all() == [{}]


def test_a_type_without_a_handler_is_parked_or_ignored_on_request() -> None:
    strict, lenient = Routes(), Routes(ignore_unknown=True)

    assert refusal(strict, message()).code == "unknown-type"
    assert isinstance(lenient.prepare(message()), Ignored)
    assert refusal(lenient, message(b"{")).code == "undecodable"


def test_a_message_that_does_not_fit_the_model_names_the_field() -> None:
    routes = Routes()
    routes.add("OrderCreated", as_bill)

    assert refusal(routes, message(b"{}")) == (
        "missing-field",
        "payload.order_id is missing",
    )
    assert refusal(routes, message(b'{"order_id":1}')).code == "invalid-field"
    assert refusal(routes, message(b"[]")).code == "invalid-field"
    assert refusal(routes, message(b"<xml/>", **{"content-type": "text/xml"})).code == (
        "wrong-content-type"
    )


def test_a_tombstone_reaches_a_handler_that_expects_none() -> None:
    async def maybe(event: Bill | None, ctx: Context) -> None:
        """Take a bill, or none."""

    routes, strict = Routes(), Routes()
    routes.add("OrderCreated", maybe)
    strict.add("OrderCreated", as_bill)
    tombstone = message()._replace(body=None)

    assert isinstance(routes.prepare(tombstone), Prepared)
    assert refusal(strict, tombstone).code == "invalid-field"


def test_the_rules_of_reading_and_the_maker_of_ids_are_the_routes_own() -> None:
    routes = Routes(identify=lambda _: "made", rules=ReadingRules(tenant_required=True))
    routes.add("orders.order", as_dict)
    foreign = Incoming("orders.order", None, {}, b"{}")

    assert refusal(routes, foreign).code == "tenant-required"
    named = foreign._replace(headers={"tenant_id": "acme"})
    assert prepared(routes, named).envelope.event_id == "made"


def test_a_second_handler_of_a_type_is_refused() -> None:
    routes = Routes()
    routes.add("OrderCreated", as_bill)

    with pytest.raises(InvalidConfig, match="make a consumer of another name"):
        routes.add("OrderCreated", as_dict)

    assert routes.event_types == ["OrderCreated"]


def sync_with_async_context(event: Bill, ctx: Context) -> None:
    """Be wrong."""


async def async_with_sync_context(event: Bill, ctx: SyncContext) -> None:
    """Be wrong."""


async def nothing_at_all() -> None:
    """Be wrong."""


async def too_much(event: Bill, ctx: Context, more: int) -> None:
    """Be wrong."""


async def two_contexts(one: Context, other: Context) -> None:
    """Be wrong."""


async def strange(event: complex, ctx: Context) -> None:
    """Be wrong."""


async def lost(event: "Nowhere", ctx: Context) -> None:  # type: ignore[name-defined]  # noqa: F821 - that is the point
    """Be wrong."""


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (sync_with_async_context, "is no coroutine and takes a Context; annotate it as SyncCont"),
        (async_with_sync_context, "is a coroutine and takes a SyncContext"),
        (nothing_at_all, "needs 0 arguments"),
        (too_much, "needs 3 arguments"),
        (two_contexts, "has two contexts"),
        (strange, "is no model that a payload can become"),
        (lost, "names 'Nowhere' in an annotation, which is not found"),
    ],
)
def test_a_handler_that_cannot_be_called_is_refused_at_once(function: Any, problem: str) -> None:
    with pytest.raises(InvalidConfig, match=problem):
        Routes().add("OrderCreated", function)
