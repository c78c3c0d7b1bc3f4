"""Messages for handlers, and what the handlers got."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from decimal import Decimal

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox import DomainEvent, MessageEnvelope
from pillarbox.consumer.context import Context
from pillarbox.consumer.routes import Prepared, Routes
from pillarbox.event.incoming import Incoming, Unreadable
from tests.support.database import Database, on


class OrderCreated(DomainEvent):
    aggregate_type = "order"
    order_id: str
    total: Decimal


@dataclass
class Bill:
    order_id: str


def message(
    body: bytes = b'{"order_id":"o-1","total":"9.90"}', kind: str = "OrderCreated", **headers: str
) -> Incoming:
    return Incoming("orders.order", "o-1", {"event_id": "e-1", "event_type": kind, **headers}, body)


def prepared(routes: Routes, sent: Incoming) -> Prepared:
    found = routes.prepare(sent)
    assert isinstance(found, Prepared), found
    return found


def refusal(routes: Routes, sent: Incoming) -> Unreadable:
    found = routes.prepare(sent)
    assert isinstance(found, Unreadable), found
    return found


@pytest.fixture
async def session(database: Database) -> AsyncIterator[AsyncSession]:
    async with database.sessions() as opened:
        yield opened


def context(envelope: MessageEnvelope, session: AsyncSession) -> Context:
    return Context(consumer="payments", envelope=envelope, session=session)


on_sqlite = on("sqlite+aiosqlite")


got: list[object] = []


@pytest.fixture(autouse=True)
def nothing_got() -> None:
    got.clear()


async def as_bill(event: Bill) -> None:
    got.append(event)
