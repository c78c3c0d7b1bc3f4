"""Many messages claimed with one statement."""

import pytest
from sqlalchemy import event

from pillarbox import InboxMessage, MessageEnvelope, SqlAlchemyInbox
from pillarbox.errors import ContentMismatch
from pillarbox.inbox.identity import content_hash
from tests.inbox.targets import Target, stored
from tests.support.database import Database

LONG_ID = "x" * 300
PAYLOAD = {"order_id": "o-1", "total": "9.90"}


async def test_odd_ids_arrive_as_they_are(database: Database, target: Target) -> None:
    odd = [
        "'; DROP TABLE inbox; --",
        "ünïcödé 🙂",
        " x ",
        "x",
        "X",
        '{"a":1}',
        "a\nb",
        "\\",
        "%s :x",
    ]

    assert await SqlAlchemyInbox(target).claim_many(
        [InboxMessage(message_id=one, event_type="T") for one in odd]
    ) == set(odd)
    await target.commit()

    assert set(await stored(database)) == set(odd)


async def test_a_batch_is_claimed_with_one_statement(database: Database, target: Target) -> None:
    sent: list[str] = []
    inbox = SqlAlchemyInbox(target)
    await inbox.claim("m-3", event_type="T", payload=b"3")
    event.listen(
        database.engine.sync_engine, "before_cursor_execute", lambda *call: sent.append(call[2])
    )
    batch = [InboxMessage(message_id=f"m-{n}", event_type="T", payload=b"%d" % n) for n in (2, 1)]

    new = await inbox.claim_many(batch)

    assert new == {"m-1", "m-2"}
    assert [statement.split()[0] for statement in sent] == ["INSERT"]
    repeated = InboxMessage(message_id="m-4", event_type="T", payload=b"4")
    old = InboxMessage(message_id="m-3", event_type="T", payload=b"3")
    assert await inbox.claim_many([repeated, old, repeated, *batch]) == {"m-4"}
    assert await inbox.claim_many([]) == set()


async def test_other_content_inside_one_batch_is_noticed_too(target: Target) -> None:
    batch = [InboxMessage(message_id="m-1", event_type="T", payload=b"%d" % n) for n in (1, 2)]

    with pytest.raises(ContentMismatch):
        await SqlAlchemyInbox(target).claim_many(batch)


async def test_a_batch_of_envelopes_long_ids_and_numbers(target: Target) -> None:
    envelope = MessageEnvelope("e-1", "OrderCreated", PAYLOAD, source="orders")
    batch = [
        InboxMessage.of(envelope),
        InboxMessage(message_id=LONG_ID, event_type="T"),
        InboxMessage(message_id=7, event_type="T"),
    ]
    inbox = SqlAlchemyInbox(target)

    assert await inbox.claim_many(batch) == {"e-1", LONG_ID, 7}
    record = await inbox.get_record("e-1")
    assert record is not None
    assert (record.event_type, record.source) == ("OrderCreated", "orders")
    assert record.payload_hash == content_hash(envelope.body())
