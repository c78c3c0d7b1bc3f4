"""Show what happened to the events that a violation names, for whoever looks for the reason."""

from collections.abc import Iterator, Sequence
from typing import Final
from uuid import UUID

import psycopg

from tests.faults.checker import Report
from tests.faults.history import Copy

_EVENTS: Final = 6
_QUERIES: Final = {
    "row": "SELECT seq, txid, tenant_id, key, topic, status, retry_count, shard_hash & 63 AS shard,"
    " created_at, published_at FROM outbox WHERE id = %(id)s",
    "claims": "SELECT c.at, c.projector, cardinality(c.seqs) AS events FROM audit_claim c"
    " JOIN outbox o ON o.seq = ANY(c.seqs) WHERE o.id = %(id)s ORDER BY c.number",
    "writes": "SELECT at, projector, old_status, new_status, old_attempts, new_attempts"
    " FROM audit_status WHERE message_id = %(id)s ORDER BY number",
    "leases": "SELECT l.at, l.projector, l.old_epoch, l.new_epoch, a.projector AS taken_from,"
    " l.old_expires_at FROM audit_lease l JOIN outbox o ON l.shard = (o.shard_hash & 63)"
    " LEFT JOIN audit_member a ON a.member = l.old_member WHERE o.id = %(id)s"
    " AND l.at BETWEEN o.created_at - interval '5 s' AND o.published_at + interval '2 s'"
    " ORDER BY l.number",
}


def evidence(database: str, report: Report, log: Sequence[Copy]) -> str:
    """Gather rows, claims, writes, leases and copies of the first few events."""
    named = [name for found in report.violations for name in found.ids if _is_id(name)]
    with psycopg.connect(database, autocommit=True) as connection:
        return "\n".join(
            line
            for message_id in dict.fromkeys(named[:_EVENTS])
            for line in _lines(connection, message_id, log)
        )


def _lines(connection: psycopg.Connection, message_id: str, log: Sequence[Copy]) -> Iterator[str]:
    yield f"event {message_id}"
    for name, query in _QUERIES.items():
        cursor = connection.execute(query.encode(), {"id": message_id})
        names = [column.name for column in cursor.description or ()]
        for row in cursor:
            yield f"  {name}: " + " ".join(f"{n}={v}" for n, v in zip(names, row, strict=True))
    for copy in log:
        if copy.message_id == message_id:
            yield f"  copy: {copy.log}@{copy.offset} at={copy.at:.3f}"


def _is_id(name: str) -> bool:
    try:
        UUID(name)
    except ValueError:
        return False
    return True
