"""What the hand-written loops share: their statements, and rows that stay bytes.

One pass goes over the partial index on `txid`, in which rows stand as they were written: the
quickest way through the shipped table. No claim, no lease, no fence.
"""

import json
from collections.abc import Sequence
from typing import Any, Final

import psycopg
from psycopg_binary import _psycopg

BATCH: Final = 1_000
BATCHES_IN_HAND: Final = 4
DEDUP: Final = "#dedup"
"""Behind an address of Pulsar it asks a side to number its messages."""

ID, TYPE, TENANT, KEY, AGGREGATE, AGGREGATE_TYPE, VERSION, NUMBER, SCHEMA, TIME = range(10)
CONTENT, METADATA, PAYLOAD, TOPIC, SEQ, TXID = range(10, 16)

Position = tuple[str, str, int]
START: Final[Position] = ("0", "0", 0)

READ: Final = """
SELECT
    id::text, event_type, tenant_id, key, aggregate_id, aggregate_type, aggregate_version,
    event_number, schema_version::text, occurred_at, content_type, event_metadata, payload, topic,
    seq, txid::text AS written_by
FROM outbox
WHERE status = 'NEW' AND set_aside IS NULL
    AND txid >= %s::text::xid8 AND (txid, seq) > (%s::text::xid8, %s)
ORDER BY txid, seq LIMIT 1000
"""
SETTLE: Final = """
UPDATE outbox SET status = 'SENT', published_at = now()
WHERE tenant_id = 'default' AND id = ANY(%s::uuid[]) AND status = 'NEW' AND set_aside IS NULL
"""


def keep_bytes(connection: psycopg.Connection | psycopg.AsyncConnection, *kinds: str) -> None:
    """Have columns arrive as the bytes that go out again: nothing is decoded and encoded."""
    loader: Any = vars(_psycopg)["ByteaBinaryLoader"]  # compiled, and untyped
    for kind in kinds:
        connection.adapters.register_loader(kind, loader)


def position_after(rows: Sequence[Any]) -> Position:
    """Return where the next batch begins."""
    txid = rows[-1][TXID]
    txid = txid.decode() if isinstance(txid, bytes) else txid
    return (txid, txid, rows[-1][SEQ])


def ids_of(rows: Sequence[Any]) -> str:
    """Return the ids as an array for `SETTLE`."""
    ids = [row[ID] for row in rows]
    return "{" + (b",".join(ids).decode() if isinstance(ids[0], bytes) else ",".join(ids)) + "}"


def tell(**found: object) -> None:
    """Say something to the suite."""
    print(json.dumps(found), flush=True)
