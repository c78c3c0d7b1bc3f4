"""A mail is sent once for its message, whatever becomes of the process that asked for it."""

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, Delete, event, text
from sqlalchemy.exc import DBAPIError

from examples.demo.databases import Database
from pillarbox import Context, MessageEnvelope, Pillarbox, tenant
from pillarbox.testing import BoxUnderTest
from pillarbox.testing.fixture.faults import Crash

SERVICE = "examples.shop.notification_service.app"
CONFIRMED: dict[str, Any] = {
    "event_type": "OrderConfirmed",
    "topic": "orders.order",
    "key": "o-1",
    "aggregate_version": 2,
}
PAYLOAD = {"order_id": "o-1", "user_id": "ada"}


@pytest.fixture(scope="module")
def address(shop_databases: Mapping[str, Database]) -> str:
    return shop_databases["notifications"].owner


@pytest.fixture(scope="module")
def pillarbox_app(address: str) -> Pillarbox:
    """The service's own box; its modules read the addresses when they are imported."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATABASE_URL", address)
        patch.setenv("PILLARBOX_BUS_URL", "memory://")
        box: Pillarbox = importlib.import_module(f"{SERVICE}.consumer").box
    return box


@pytest.fixture
def owner(address: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(address, autocommit=True) as connection:
        yield connection
        connection.execute("DELETE FROM mail")


def sent(owner: psycopg.Connection) -> list[tuple[str, int]]:
    """Return to whom mails were sent, and how often each was asked for."""
    return owner.execute("SELECT recipient, calls FROM mail").fetchall()


@contextmanager
def dying_before_it_notes_a_task(box: Pillarbox) -> Iterator[None]:
    """Let a process that has done its task end before it can write so."""

    def die(_: Connection, statement: object, *__: object) -> None:
        if isinstance(statement, Delete) and getattr(statement.table, "name", "") == "inbox_task":
            raise Crash(statement)

    event.listen(box.engine.sync_engine, "before_execute", die)
    died = False
    try:
        yield
    except* Crash:
        died = True
    except* DBAPIError:  # what is cut off in the pool's ping; whether it died is asked below
        pass
    finally:
        event.remove(box.engine.sync_engine, "before_execute", die)
    assert died


async def test_a_mail_that_left_before_its_process_died_is_asked_for_again_and_sent_once(
    pillarbox_app: Pillarbox, owner: psycopg.Connection
) -> None:
    consumer = pillarbox_app.consumers["notifications"]
    message = MessageEnvelope(
        "e-1", **CONFIRMED, payload=PAYLOAD, tenant_id="acme", source="orders"
    )
    await pillarbox_app.bus.publish([message])

    with dying_before_it_notes_a_task(pillarbox_app):
        await consumer.drain()
    after_the_crash = sent(owner)
    owner.execute("UPDATE inbox_task SET due_at = now()")
    await consumer.drain()
    await pillarbox_app.engine.dispose()

    assert after_the_crash == [("ada", 1)]
    assert sent(owner) == [("ada", 2)]


async def test_a_message_that_is_handled_again_asks_for_its_mail_under_the_same_key(
    pillarbox: BoxUnderTest, pillarbox_app: Pillarbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that opened a session of the box once broke the test's only connection."""
    keys, after_commit = list[str](), Context.after_commit

    def noted(ctx: Context, task: Any, **arguments: Any) -> None:
        keys.append(arguments["key"])
        after_commit(ctx, task, **arguments)

    monkeypatch.setattr(Context, "after_commit", noted)
    with tenant("acme"):
        await pillarbox.outbox.add(**CONFIRMED, payload=PAYLOAD)

    pillarbox.crash_after("handle")
    await pillarbox.deliver()

    assert len(keys) == 2
    assert len(set(keys)) == 1
    with tenant("acme"):
        async with pillarbox_app.session_factory() as session:
            mails = await session.execute(text("SELECT recipient, calls FROM mail"))
    assert [tuple(row) for row in mails] == [("ada", 1)]
