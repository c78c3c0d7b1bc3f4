"""The inbox by hand, on sessions and connections of every database."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import select

from pillarbox import Inbox, InboxMessage, InboxRecord, JsonText, MessageEnvelope, SqlAlchemyInbox
from pillarbox.errors import ContentMismatch, DuplicateMessage, PayloadNotJson
from pillarbox.inbox.identity import content_hash, stored_id
from tests.inbox.targets import Target, stored
from tests.support.database import Database
from tests.support.orders import Order

LONG_ID = "x" * 300
PAYLOAD = {"order_id": "o-1", "total": "9.90"}


async def test_the_usage_of_the_documents_runs_as_written(database: Database) -> None:
    handled: list[Any] = []
    event_id, payload = "evt-001", PAYLOAD

    for _ in range(2):
        async with database.sessions() as session:
            inbox = SqlAlchemyInbox(session, tenant_id="default")
            if not await inbox.is_processed(event_id):
                handled.append(payload)
                await inbox.mark_processed(
                    message_id=event_id, event_type="OrderCreated", payload=payload,
                    source="order-service", extra_data=None,
                )  # fmt: skip
                await session.commit()
            assert await inbox.claim(event_id, event_type="OrderCreated") is False
            assert await inbox.get_record(event_id) is not None
            assert await inbox.cleanup_old_records(older_than_days=30) == 0

    assert handled == [payload]


async def test_a_handler_takes_an_envelope_and_an_inbox(database: Database) -> None:
    async def handle_message(envelope: MessageEnvelope, inbox: Inbox) -> None:
        claimed = await inbox.claim(
            envelope.event_id, event_type=envelope.event_type, payload=envelope.payload
        )
        handled.append(claimed)

    handled: list[bool] = []
    envelope = MessageEnvelope("evt-001", "OrderCreated", PAYLOAD)
    async with database.sessions() as session:
        for _ in range(2):
            await handle_message(envelope, SqlAlchemyInbox(session))

    assert handled == [True, False]


async def test_a_claim_commits_with_the_transaction(database: Database, target: Target) -> None:
    inbox = SqlAlchemyInbox(target)
    assert await inbox.claim("m-1", event_type="T") is True
    await target.commit()
    assert await inbox.claim("m-2", event_type="T") is True
    await target.rollback()

    assert await stored(database) == ["m-1"]
    assert await inbox.claim("m-1", event_type="T") is False
    assert await inbox.claim("m-2", event_type="T") is True


async def test_a_claim_inside_a_savepoint_goes_with_it(database: Database, target: Target) -> None:
    inbox = SqlAlchemyInbox(target)
    await inbox.claim("m-1", event_type="T")
    savepoint = await target.begin_nested()
    await inbox.claim("m-2", event_type="T")
    await savepoint.rollback()
    await target.commit()

    assert await stored(database) == ["m-1"]


async def test_what_was_marked_is_processed_and_can_be_looked_up(
    database: Database, target: Target
) -> None:
    inbox = SqlAlchemyInbox(target, consumer="payments")
    assert not await inbox.is_processed("m-1")

    marked = await inbox.mark_processed("m-1", "OrderCreated", PAYLOAD, "orders", {"attempt": 2})

    assert await inbox.is_processed("m-1")
    found = await inbox.get_record("m-1")
    assert found is not None
    for record in (marked, found):
        assert (record.tenant_id, record.consumer, record.message_id) == (
            "default",
            "payments",
            "m-1",
        )
        assert (record.event_type, record.source) == ("OrderCreated", "orders")
        assert (record.payload, record.extra_data) == (None, {"attempt": 2})
        assert record.payload_hash == content_hash(PAYLOAD)
    assert found.processed_at == marked.processed_at
    assert found.processed_at.tzinfo is not None


async def test_a_record_can_be_read_with_the_orm(database: Database) -> None:
    async with database.sessions() as session:
        await SqlAlchemyInbox(session).claim("m-1", event_type="T", source="orders")
        await session.commit()
        record = await session.scalar(select(InboxRecord).where(InboxRecord.source == "orders"))

    assert record is not None
    assert repr(record) == "<InboxRecord m-1 T consumer='default'>"


async def test_an_unknown_message_has_no_record(target: Target) -> None:
    assert await SqlAlchemyInbox(target).get_record("m-1") is None


async def test_marking_what_is_there_raises_and_changes_nothing(
    database: Database, target: Target
) -> None:
    inbox = SqlAlchemyInbox(target, consumer="payments")
    await inbox.mark_processed("m-1", "T", PAYLOAD)

    with pytest.raises(DuplicateMessage, match="roll back") as refused:
        await inbox.mark_processed("m-1", "T", PAYLOAD)

    error = refused.value
    assert (error.tenant_id, error.consumer, error.message_id) == ("default", "payments", "m-1")
    assert error.code == "duplicate-message"


@pytest.mark.parametrize("ask", ["claim", "mark", "is_processed", "claim_many"])
async def test_the_same_id_with_other_content_raises_the_alarm(
    target: Target, ask: str, caplog: pytest.LogCaptureFixture
) -> None:
    inbox = SqlAlchemyInbox(target)
    await inbox.claim("m-1", event_type="T", payload=PAYLOAD)
    other = {**PAYLOAD, "total": "0.00"}
    message = InboxMessage(message_id="m-1", event_type="T", payload=other)
    ways: dict[str, Callable[[], Awaitable[object]]] = {
        "claim": lambda: inbox.claim("m-1", event_type="T", payload=other),
        "mark": lambda: inbox.mark_processed("m-1", "T", other),
        "is_processed": lambda: inbox.is_processed("m-1", payload=other),
        "claim_many": lambda: inbox.claim_many([message]),
    }

    with pytest.raises(ContentMismatch, match="other content") as refused:
        await ways[ask]()

    error = refused.value
    assert (error.tenant_id, error.consumer, error.message_id) == ("default", "default", "m-1")
    assert (error.stored_hash, error.given_hash) == (content_hash(PAYLOAD), content_hash(other))
    assert [record.message for record in caplog.records] == ["content_mismatch"]
    assert "9.90" not in str(error) + caplog.text


@pytest.mark.parametrize("ask", ["claim", "is_processed", "claim_many"])
async def test_a_duplicate_is_told_without_its_content(
    target: Target, ask: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="pillarbox.inbox")
    inbox = SqlAlchemyInbox(target, consumer="payments")
    batch = [
        InboxMessage(message_id=one, event_type="T", payload=PAYLOAD) for one in ("m-1", "m-2")
    ]
    ways: dict[str, Callable[[], Awaitable[object]]] = {
        "claim": lambda: inbox.claim("m-1", event_type="T", payload=PAYLOAD),
        "is_processed": lambda: inbox.is_processed("m-1", payload=PAYLOAD),
        "claim_many": lambda: inbox.claim_many(batch),
    }
    await inbox.claim("m-1", event_type="T", payload=PAYLOAD)
    assert caplog.records == []

    await ways[ask]()

    [said] = caplog.records
    assert (said.message, said.levelname) == ("duplicate_message", "DEBUG")
    told = {name: vars(said)[name] for name in ("tenant_id", "consumer", "message_id")}
    assert told == {"tenant_id": "default", "consumer": "payments", "message_id": "m-1"}
    assert "9.90" not in str(vars(said))


async def test_the_same_content_written_otherwise_is_a_plain_duplicate(target: Target) -> None:
    inbox = SqlAlchemyInbox(target)
    await inbox.claim("m-1", event_type="T", payload={"a": 1, "b": 2})

    assert await inbox.claim("m-1", event_type="T", payload={"b": 2, "a": 1}) is False
    assert await inbox.claim("m-1", event_type="T") is False
    assert await inbox.is_processed("m-1", payload={"b": 2, "a": 1}) is True


async def test_no_content_is_known_of_a_tombstone_and_unknown_by_hand(target: Target) -> None:
    inbox = SqlAlchemyInbox(target, keep_payload=True)
    tombstone = InboxMessage.of(MessageEnvelope("m-1", "T"))
    content = InboxMessage.of(MessageEnvelope("m-1", "T", PAYLOAD))
    assert await inbox.claim_many([tombstone]) == {"m-1"}
    await inbox.mark_processed("m-2", "T", payload=None)

    with pytest.raises(ContentMismatch):
        await inbox.claim_many([content])
    assert await inbox.claim_many([tombstone]) == set()
    assert await inbox.is_processed("m-1", payload=None) is True
    assert await inbox.claim("m-2", event_type="T", payload=PAYLOAD) is False
    assert await inbox.claim("m-2", event_type="T", payload=b"") is False


async def test_the_payload_is_kept_by_option(target: Target) -> None:
    inbox = SqlAlchemyInbox(target, keep_payload=True)
    await inbox.claim("value", event_type="T", payload=PAYLOAD)
    await inbox.claim("bytes", event_type="T", payload=b'{"n": 1.0}')
    await inbox.claim("text", event_type="T", payload=JsonText('{"n": 2}'))
    await inbox.claim("nothing", event_type="T")
    await inbox.claim_many(
        [InboxMessage(message_id="batch", event_type="T", payload={"n": 3}, extra_data=["x"])]
    )

    records = {name: await inbox.get_record(name) for name in
               ("value", "bytes", "text", "nothing", "batch")}  # fmt: skip
    kept = {name: record.payload for name, record in records.items() if record}
    assert kept == {
        "value": PAYLOAD,
        "bytes": {"n": 1.0},
        "text": {"n": 2},
        "nothing": None,
        "batch": {"n": 3},
    }
    assert records["batch"] is not None
    assert records["batch"].extra_data == ["x"]


async def test_bytes_that_are_no_json_are_hashed_and_cannot_be_kept(target: Target) -> None:
    assert await SqlAlchemyInbox(target).claim("m-1", event_type="T", payload=b"\xff\x00")
    with pytest.raises(PayloadNotJson):
        await SqlAlchemyInbox(target, keep_payload=True).claim(
            "m-2", event_type="T", payload=b"<xml/>"
        )


async def test_consumers_and_tenants_take_the_same_id_independently(target: Target) -> None:
    taken = [
        await SqlAlchemyInbox(target, tenant, consumer=consumer).claim("m-1", event_type="T")
        for _ in range(2)
        for tenant in ("default", "acme")
        for consumer in ("default", "mail")
    ]

    assert taken == [True] * 4 + [False] * 4


async def test_a_long_id_is_stored_hashed_and_found_again(
    database: Database, target: Target
) -> None:
    inbox = SqlAlchemyInbox(target)

    assert await inbox.claim(LONG_ID, event_type="T") is True
    assert await inbox.claim(LONG_ID, event_type="T") is False
    assert await inbox.claim(stored_id(LONG_ID), event_type="T") is True
    assert await inbox.is_processed(LONG_ID)
    await target.commit()
    assert all(len(message_id) == 71 for message_id in await stored(database))


async def test_the_effect_and_the_record_go_together(database: Database) -> None:
    async with database.sessions() as session:
        assert await SqlAlchemyInbox(session).claim("m-1", event_type="T")
        session.add(Order(id="o-1"))
        await session.flush()
        await session.rollback()

    assert await database.order_ids() == []
    assert await stored(database) == []
