"""Events of older and newer versions than the model that a handler wants."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox import DomainEvent, EventRegistry
from pillarbox.consumer.routes import Prepared, Routes
from pillarbox.event.registry import Payload
from tests.consumer.handling import (
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

__all__ = ["nothing_got", "session"]


class Priced(DomainEvent):
    schema_version = 2
    order_id: str
    currency: str


def priced(registry: EventRegistry) -> Callable[[Payload], Payload]:
    @registry.upcaster("Priced", from_version=1)
    def add_currency(payload: Payload) -> Payload:
        return {**payload, "currency": "EUR"}

    return add_currency


async def as_priced(event: Priced) -> None:
    got.append(event)


@dataclass
class LocalPriced:
    order_id: str
    currency: str


async def as_local_priced(event: LocalPriced) -> None:
    got.append(event)


@on_sqlite
@pytest.mark.parametrize("registered", [True, False])
async def test_upcasters_run_before_the_conversion(session: AsyncSession, registered: bool) -> None:
    registry = EventRegistry()
    priced(registry)
    if registered:
        registry.event(Priced)
    routes = Routes(registry)
    routes.add("Priced", as_priced)

    for version in ("1", "2"):
        body = b'{"order_id":"o","currency":"CHF"}' if version == "2" else b'{"order_id":"o"}'
        found = prepared(routes, message(body, "Priced", schema_version=version))
        await found.handler(context(found.envelope, session))

    assert got == [Priced("o", "EUR"), Priced("o", "CHF")]


@on_sqlite
async def test_a_local_model_is_given_the_newest_form_that_the_steps_lead_to(
    session: AsyncSession,
) -> None:
    registry = EventRegistry()
    priced(registry)
    routes = Routes(registry)
    routes.add("Priced", as_local_priced)

    found = prepared(routes, message(b'{"order_id":"o"}', "Priced", schema_version="1"))
    await found.handler(context(found.envelope, session))
    newer = routes.prepare(
        message(b'{"order_id":"o","currency":"CHF"}', "Priced", schema_version="3")
    )

    assert got == [LocalPriced("o", "EUR")]
    assert isinstance(newer, Prepared)


def test_a_version_that_the_code_does_not_know_is_refused() -> None:
    registry = EventRegistry()
    routes = Routes(registry)
    routes.add("Priced", as_priced)
    routes.add("Local", as_bill, schema_version=3)

    newer = refusal(routes, message(b"{}", "Priced", schema_version="3"))
    older = refusal(routes, message(b"{}", "Priced", schema_version="1"))
    local = refusal(routes, message(b"{}", "Local", schema_version="4"))

    assert {newer.code, older.code, local.code} == {"schema-version"}
    assert "3 of Priced is newer than 2" in newer.reason
    assert "1 of Priced has no upcaster to 2" in older.reason


def test_an_upcaster_that_fails_is_no_end_of_the_loop() -> None:
    registry = EventRegistry()

    @registry.upcaster("Priced", from_version=1)
    def fails(payload: Payload) -> Payload:
        return {"order_id": payload["secret"]}

    routes = Routes(registry)
    routes.add("Priced", as_priced)

    assert refusal(routes, message(b"[]", "Priced")) == (
        "schema-version",
        "the upcaster of Priced raised TypeError",
    )
