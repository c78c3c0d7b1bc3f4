"""Rows of the outbox and of the projector's tables, as projectors would have left them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Table, delete, insert, select
from sqlalchemy.ext.asyncio import AsyncEngine

from pillarbox.schema.tables import (
    outbox,
    outbox_blocked_key,
    outbox_claim,
    outbox_claim_end,
    outbox_control,
    outbox_lease,
    outbox_member,
    pillarbox_audit,
)
from tests.schema.rows import MEMBER, new_id

Values = dict[str, Any]
TABLES = (
    outbox,
    pillarbox_audit,
    outbox_blocked_key,
    outbox_claim,
    outbox_claim_end,
    outbox_control,
    outbox_lease,
    outbox_member,
)


@dataclass(frozen=True, slots=True)
class Rows:
    """Write and read rows over connections of their own."""

    engine: AsyncEngine

    async def clear(self) -> None:
        async with self.engine.begin() as connection:
            for table in TABLES:
                await connection.execute(delete(table))

    async def insert(self, table: Table, values: Mapping[str, Any]) -> None:
        async with self.engine.begin() as connection:
            await connection.execute(insert(table).values(**values))

    async def event(self, seq: int, status: str = "DEAD", **columns: Any) -> UUID:
        """Record one event, by default a DEAD one of `order-1`."""
        now = datetime.now(UTC)
        values: Values = {
            "id": new_id(now),
            "seq": seq,
            "txid": None,
            "status": status,
            "occurred_at": now,
            "created_at": now,
            "shard_hash": 0,
            "event_type": "OrderPlaced",
            "topic": "orders",
            "key": "order-1",
            "payload": {"card": "secret"},
        }
        if status in ("FAILED", "DEAD"):
            values |= {"error_class": "too-large", "error_message": "1 MB", "retry_count": 5}
        if status == "FAILED":
            values["retry_after"] = now + timedelta(minutes=1)
        await self.insert(outbox, values | columns)
        event_id: UUID = (values | columns)["id"]
        return event_id

    async def blocking(self, seq: int, status: str = "DEAD", **columns: Any) -> UUID:
        """Record a FAILED or DEAD event that blocks its key."""
        event_id = await self.event(seq, status, **columns)
        await self.block(event_id, seq, **columns)
        return event_id

    async def block(self, event_id: UUID, seq: int, **columns: Any) -> None:
        place = {"tenant_id": "default", "key": "order-1"}
        place |= {name: columns[name] for name in place if name in columns}
        await self.insert(outbox_blocked_key, place | {"event_id": event_id, "seq": seq})

    async def behind(self, *seqs: int, **columns: Any) -> list[UUID]:
        """Record events that were set aside behind their key."""
        return [await self.event(seq, "NEW", set_aside="key", **columns) for seq in seqs]

    async def claim(self, *seqs: int, leased: timedelta = timedelta(minutes=1)) -> UUID:
        """Claim events under a lease that is the member's own."""
        expires_at = datetime.now(UTC) + leased
        if not await self.all(outbox_lease):
            lease: Values = {"scope": "all", "shard": 3, "member_id": MEMBER, "epoch": 7}
            await self.insert(outbox_lease, lease | {"expires_at": expires_at})
        claim_id = uuid4()
        claim: Values = {"claim_id": claim_id, "member_id": MEMBER, "scope": "all"}
        lists: Values = {"shards": [3], "epochs": [7], "seqs": list(seqs)}
        await self.insert(outbox_claim, claim | lists)
        return claim_id

    async def end(self, claim_id: UUID) -> None:
        await self.insert(outbox_claim_end, {"claim_id": claim_id})

    async def all(self, table: Table) -> Sequence[Mapping[str, Any]]:
        async with self.engine.connect() as connection:
            found = await connection.execute(select(table).order_by(*table.primary_key))
            return [dict(row) for row in found.mappings()]

    async def one(self, event_id: UUID) -> Mapping[str, Any]:
        (found,) = [row for row in await self.all(outbox) if row["id"] == event_id]
        return found

    async def claimable(self) -> list[int]:
        """Return the numbers that a claim would find, in order."""
        return sorted(
            row["seq"]
            for row in await self.all(outbox)
            if row["status"] == "NEW" and row["set_aside"] is None
        )

    async def blocked(self) -> dict[str, tuple[UUID, int]]:
        """Return what blocks each key, and up to which number events may pass."""
        return {
            row["key"]: (row["event_id"], row["seq"]) for row in await self.all(outbox_blocked_key)
        }

    async def audit(self) -> Sequence[Mapping[str, Any]]:
        return await self.all(pillarbox_audit)
