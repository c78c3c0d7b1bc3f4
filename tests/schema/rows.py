"""Rows for tests, written as the outbox writes them."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Connection, insert

from pillarbox.event.ids import first_id
from pillarbox.schema.tables import outbox, outbox_claim, outbox_claim_end, outbox_lease

MEMBER = UUID("01900000-0000-7000-8000-000000000001")
NOW = datetime.now(UTC)


def new_id(at: datetime = NOW) -> UUID:
    """Make an id of a time, as a UUIDv7 begins."""
    return UUID(int=first_id(at).int | (uuid4().int >> 48))


def record(connection: Connection, seq: int, status: str = "NEW", **columns: Any) -> UUID:
    """Insert one row, and return its id."""
    values: dict[str, Any] = {
        "id": new_id(),
        "seq": seq,
        "status": status,
        "occurred_at": NOW,
        "shard_hash": 0,
        "event_type": "OrderPlaced",
        "topic": "shop.order",
        "key": "order-1",
        "payload": {"n": seq},
    } | columns
    connection.execute(insert(outbox).values(**values))
    event_id: UUID = values["id"]
    return event_id


def lease(connection: Connection, **columns: Any) -> None:
    """Give shard 3 to the member for a minute, with epoch 7, unless told otherwise."""
    values: dict[str, Any] = {
        "scope": "all",
        "shard": 3,
        "member_id": MEMBER,
        "epoch": 7,
        "expires_at": datetime.now(UTC) + timedelta(minutes=1),
    }
    connection.execute(insert(outbox_lease).values(**values | columns))


def claim(connection: Connection, seqs: list[int], *, ended: bool = False, **columns: Any) -> None:
    """Claim rows under the lease of shard 3."""
    values: dict[str, Any] = {
        "claim_id": uuid4(),
        "member_id": MEMBER,
        "scope": "all",
        "shards": [3, 4],
        "epochs": [7, 9],
        "seqs": seqs,
    } | columns
    connection.execute(insert(outbox_claim).values(**values))
    if ended:
        connection.execute(insert(outbox_claim_end).values(claim_id=values["claim_id"]))
