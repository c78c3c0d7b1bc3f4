"""Which events are on their way to the broker."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Select, exists, select

from pillarbox.schema.tables import outbox_claim, outbox_claim_end, outbox_lease, table_in
from pillarbox.schema.types import DatabaseTime


@dataclass(frozen=True, slots=True)
class OpenClaim:
    """A batch that a projector may be sending."""

    claim_id: UUID
    member_id: UUID
    claimed_at: datetime
    seqs: frozenset[int]


def open_claims(connection: Connection, schema: str | None) -> Sequence[OpenClaim]:
    """Return the claims without an end whose owner lives, as `outbox_live` does.

    A living owner holds one of its shards under the claim's epoch; others it may have handed over.
    """
    claims = connection.execute(_without_end(schema)).all()
    held = {tuple(row) for row in connection.execute(_held(schema))} if claims else set()
    return [
        OpenClaim(row.claim_id, row.member_id, row.claimed_at, frozenset(row.seqs))
        for row in claims
        if not held.isdisjoint(
            (row.scope, row.member_id, shard, epoch)
            for shard, epoch in zip(row.shards, row.epochs, strict=True)
        )
    ]


def claim_on(claims: Iterable[OpenClaim], seq: int) -> OpenClaim | None:
    """Return the open claim in which an event stands."""
    return next((claim for claim in claims if seq in claim.seqs), None)


def _without_end(schema: str | None) -> Select[Any]:
    claim, end = table_in(outbox_claim, schema), table_in(outbox_claim_end, schema)
    return select(claim).where(~exists().where(end.c.claim_id == claim.c.claim_id))


def _held(schema: str | None) -> Select[Any]:
    lease = table_in(outbox_lease, schema).c
    return select(lease.scope, lease.member_id, lease.shard, lease.epoch).where(
        lease.expires_at > DatabaseTime()
    )
