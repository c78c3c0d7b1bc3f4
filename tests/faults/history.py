"""What a run leaves behind, as plain values for the checker. Imports nothing of the product."""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import psycopg

from tests.faults.readers import Message

IDENTITY: Final = ("rig-tenant", "rig-key", "rig-n")
_ID_HEADERS: Final = ("event_id", "ce_id", "ce-id")


class Committed(NamedTuple):
    """One event of a committed transaction, by the business table."""

    tenant: str
    key: str
    n: int
    message_id: str
    topic: str
    sha256: str


class Row(NamedTuple):
    """A row of the outbox."""

    message_id: str
    seq: int
    tenant: str
    key: str
    topic: str
    status: str
    attempts: int
    error: str | None
    headers: Mapping[str, str]


class Copy(NamedTuple):
    """A message in the broker's log; `log` names the sequence that `offset` counts in."""

    message_id: str | None
    identity: tuple[str | None, ...]
    topic: str
    log: str
    offset: int
    at: float
    sha256: str
    headers: tuple[tuple[str, str], ...]


class StatusChange(NamedTuple):
    """One write of a status; `owner` held the shard's lease in that transaction."""

    at: float
    projector: str
    message_id: str
    old_status: str
    new_status: str
    old_attempts: int
    new_attempts: int
    owner: str | None


class LeaseChange(NamedTuple):
    """A lease that came, went or changed hands."""

    at: float
    projector: str
    place: tuple[str, int]
    old_member: str | None
    new_member: str | None
    old_epoch: int | None
    new_epoch: int | None
    old_expires_at: float | None


class Step(NamedTuple):
    """A line of a projector's own trace."""

    projector: str
    name: str
    accepted: int = 0
    unknown: int = 0
    sent: int = 0


class Faults(NamedTuple):
    """How many faults may have caused a second copy."""

    projector: int = 0
    broker: int = 0
    database: int = 0


NO_FAULTS: Final = Faults()


@dataclass(frozen=True, slots=True)
class History:
    """All that the checker looks at."""

    committed: Sequence[Committed] = ()
    rolled_back: frozenset[str] = frozenset()
    acknowledged: frozenset[str] = frozenset()
    visible: frozenset[str] = frozenset()
    rows: Sequence[Row] = ()
    log: Sequence[Copy] = ()
    changes: Sequence[StatusChange] = ()
    leases: Sequence[LeaseChange] = ()
    claims: Mapping[int, int] | None = None
    members: Mapping[str, str] = field(default_factory=dict)
    steps: Sequence[Step] = ()
    faults: Faults = NO_FAULTS


def digest(body: bytes | None) -> str:
    """Return the fingerprint of a body; a tombstone has that of no bytes."""
    return hashlib.sha256(body or b"").hexdigest()


def read_history(
    database: str,
    messages: Iterable[Message],
    *,
    journal: Path,
    traces: Iterable[Path],
    faults: Faults,
) -> History:
    """Gather everything at rest: nothing may be running any more."""
    fates = _fates(journal)
    with psycopg.connect(database, autocommit=True) as connection:
        return History(
            committed=[Committed(*row) for row in connection.execute(_COMMITTED)],
            rolled_back=frozenset(fates["rolled-back"]),
            acknowledged=frozenset(fates["durable"]),
            visible=frozenset(fates["visible"]),
            rows=[Row(*row) for row in connection.execute(_ROWS)],
            log=[copy_of(message) for message in messages],
            changes=[StatusChange(*row) for row in connection.execute(_CHANGES)],
            leases=[
                LeaseChange(at, projector, (scope, shard), *rest)
                for at, projector, scope, shard, *rest in connection.execute(_LEASES)
            ],
            claims=Counter(
                seq
                for (seqs,) in connection.execute("SELECT seqs FROM audit_claim")
                for seq in seqs
            ),
            members=dict(connection.execute(_MEMBERS).fetchall()),
            steps=[step for trace in traces for step in read_trace(trace)],
            faults=faults,
        )


def copy_of(message: Message) -> Copy:
    """Reduce a message to what is compared."""
    named = {name.lower(): value for name, value in message.headers}
    found = (named[name] for name in _ID_HEADERS if name in named)
    return Copy(
        message_id=next(found, None),
        identity=tuple(named.get(name) for name in IDENTITY),
        topic=message.topic,
        log=message.log,
        offset=message.offset,
        at=message.at,
        sha256=digest(message.body),
        headers=tuple(sorted(message.headers)),
    )


def read_trace(trace: Path) -> Iterator[Step]:
    """Read the lines of one process; the last may be cut by the kill."""
    for line in trace.read_text("utf-8").splitlines():
        if line.endswith("}"):
            said = json.loads(line)
            counts = (said.get(name, 0) for name in ("accepted", "unknown", "sent"))
            yield Step(said["process"], said["step"], *counts)


def _fates(journal: Path) -> Mapping[str, Sequence[str]]:
    """Return the ids of each fate; what is unknown is settled by the ledger."""
    fates: dict[str, list[str]] = defaultdict(list)
    for line in journal.read_text("utf-8").splitlines():
        said = json.loads(line)
        fates[said["fate"]].extend(said["ids"])
    return fates


_COMMITTED: Final = (
    "SELECT tenant, key, n, message_id::text, topic, sha256 FROM ledger ORDER BY tenant, key, n"
)
_ROWS: Final = """
    SELECT id::text, seq, tenant_id, key, topic, status, retry_count,
        error_class || ': ' || error_message, event_metadata
    FROM outbox ORDER BY seq"""
_CHANGES: Final = """
    SELECT extract(epoch FROM at)::float8, projector, message_id::text, old_status, new_status,
        old_attempts, new_attempts, owner::text
    FROM audit_status ORDER BY number"""
_LEASES: Final = """
    SELECT extract(epoch FROM at)::float8, projector, scope, shard, old_member::text,
        new_member::text, old_epoch, new_epoch, extract(epoch FROM old_expires_at)::float8
    FROM audit_lease ORDER BY number"""
_MEMBERS: Final = "SELECT member::text, projector FROM audit_member"
