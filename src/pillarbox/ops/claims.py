"""Which events are on their way to the broker."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, Connection, Select, and_, exists, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from pillarbox.schema.tables import outbox_claim, outbox_claim_end, outbox_lease, table_in
from pillarbox.schema.types import DatabaseTime


class FirstOf(FunctionElement[int]):
    """The first number of a stored list."""

    inherit_cache = True
    type = BigInteger()


@compiles(FirstOf)
def _first_of_array(element: FirstOf, compiler: SQLCompiler, **kw: Any) -> str:
    return f"({compiler.process(element.clauses, **kw)})[1]"


@compiles(FirstOf, "sqlite")
def _first_of_json(element: FirstOf, compiler: SQLCompiler, **kw: Any) -> str:
    return f"json_extract({compiler.process(element.clauses, **kw)}, '$[0]')"


@dataclass(frozen=True, slots=True)
class OpenClaim:
    """A batch that a projector may be sending."""

    claim_id: UUID
    member_id: UUID
    claimed_at: datetime
    seqs: frozenset[int]


def open_claims(connection: Connection, schema: str | None) -> Sequence[OpenClaim]:
    """Return the claims without an end whose lease is still the claimant's, as `outbox_live` does."""
    return [
        OpenClaim(row.claim_id, row.member_id, row.claimed_at, frozenset(row.seqs))
        for row in connection.execute(_open(schema))
    ]


def claim_on(claims: Iterable[OpenClaim], seq: int) -> OpenClaim | None:
    """Return the open claim in which an event stands."""
    return next((claim for claim in claims if seq in claim.seqs), None)


def _open(schema: str | None) -> Select[Any]:
    claim, end = table_in(outbox_claim, schema), table_in(outbox_claim_end, schema)
    lease = table_in(outbox_lease, schema)
    still_held = and_(
        lease.c.scope == claim.c.scope,
        lease.c.shard == FirstOf(claim.c.shards),
        lease.c.epoch == FirstOf(claim.c.epochs),
        lease.c.member_id == claim.c.member_id,
        lease.c.expires_at > DatabaseTime(),
    )
    return (
        select(claim.c.claim_id, claim.c.member_id, claim.c.claimed_at, claim.c.seqs)
        .join(lease, still_held)
        .where(~exists().where(end.c.claim_id == claim.c.claim_id))
    )
