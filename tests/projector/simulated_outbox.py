"""The outbox as `docs/decisions/0008` describes it, in memory: rows, blocked keys, leases, claims."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from pillarbox.event.envelope import MessageEnvelope
from pillarbox.outbox.release import EXPIRED
from pillarbox.projector.store import Failure, Lane, OutboxEvent, Settled, Settlement

CHUNK = 2


class Violation(AssertionError):
    """Something that must never happen, happened."""


@dataclass(slots=True)
class OutboxRow:
    seq: int
    shard: int
    lane: Lane
    topic: str
    expires_at: float | None = None
    unreadable: bool = False
    status: str = "NEW"
    aside: bool = False
    attempts: int = 0

    @property
    def claimable(self) -> bool:
        return self.status == "NEW" and not self.aside

    def given_up(self, now: float) -> bool:
        """Whether its key may pass it."""
        expired = self.expires_at is not None and self.expires_at <= now
        return expired or self.status == "SKIPPED"


@dataclass(slots=True)
class Block:
    seq: int
    event: int
    topic: str | None


@dataclass(slots=True)
class SimulatedOutbox:
    """Rows in order of their numbers.

    A reader has `unread` to read because it became claimable, and `reread` because it goes back.
    """

    epochs: dict[int, int]
    now: float = 0.0
    rows: dict[int, OutboxRow] = field(default_factory=dict)
    blocks: dict[Lane, Block] = field(default_factory=dict)
    unread: set[int] = field(default_factory=set)
    reread: set[int] = field(default_factory=set)
    gone_back: dict[int, int] = field(default_factory=dict)
    known: set[int] = field(default_factory=set)
    open_claims: dict[UUID, set[int]] = field(default_factory=dict)

    def insert(self, row: OutboxRow) -> None:
        self.rows[row.seq] = row
        self.unread.add(row.seq)

    def read(self, epochs: Mapping[int, int], limit: int) -> list[OutboxEvent] | None:
        """Read the next events; None when a lease is lost."""
        if any(self.epochs[shard] != epoch for shard, epoch in epochs.items()):
            return None
        for shard in epochs.keys() - self.known:
            self.unread |= {row.seq for row in self.rows.values() if row.shard == shard}
        self.known = set(epochs)
        ready = [
            self.rows[seq]
            for seq in sorted(self.unread | self.reread)
            if self.rows[seq].claimable and self.rows[seq].shard in epochs
        ][:limit]
        self.reread -= {row.seq for row in ready}
        return [self.event(row) for row in ready]

    def event(self, row: OutboxRow) -> OutboxEvent:
        block = self.blocks.get(row.lane)
        return OutboxEvent(
            row.seq,
            row.shard,
            row.lane,
            row.topic,
            row.attempts,
            blocked=block is not None and row.seq > block.seq,
            blocker=block is not None and block.event == row.seq,
            expires_in=None if row.expires_at is None else row.expires_at - self.now,
            age=0.0,
            envelope=MessageEnvelope(f"event-{row.seq}", "Noted", topic=row.topic),
            unreadable=row.unreadable,
        )

    # Settling

    def settle(self, settlement: Settlement, epochs: Mapping[int, int]) -> Settled:
        """Write what `PostgresStore.settle` writes, fenced likewise."""
        lost = frozenset(shard for shard, at in epochs.items() if self.epochs[shard] != at)
        sent = [event for event in settlement.sent if event.shard not in lost]
        for event in sent:
            self._change(event, "SENT")
        for event in settlement.counted:
            if event.shard not in lost and self.rows[event.seq].attempts == event.attempts:
                self.rows[event.seq].attempts += 1
        written = [
            (event, why)
            for event, why in settlement.refused
            if event.shard not in lost and self._fail(event, why)
        ]
        self._block([(e, e.seq, None) for e, why in written if why.code != EXPIRED])
        waiting = [event for event in settlement.waiting if event.shard not in lost]
        first = {e.lane: e for e in sorted(waiting, key=lambda e: -e.seq)}
        self._block([(e, e.seq - 1, e.topic) for e in first.values()])
        aside = [event for event in settlement.aside if event.shard not in lost]
        again = tuple(event for event in aside + waiting if not self._set_aside(event))
        passed = [event for event, why in settlement.dead if why.code == EXPIRED]
        for event in (*sent, *passed):
            block = self.blocks.get(event.lane)
            if event.blocker and block is not None and block.event == event.seq:
                self.release(event.lane)
        for claim_id in settlement.ended:
            self.open_claims.pop(claim_id, None)
        return Settled(lost, again)

    def _change(self, event: OutboxEvent, status: str) -> bool:
        row = self.rows[event.seq]
        if row.status != "NEW":
            return False
        row.status = status
        return True

    def _fail(self, event: OutboxEvent, why: Failure) -> bool:
        if self.rows[event.seq].attempts != event.attempts:
            return False
        self.rows[event.seq].attempts += why.code != EXPIRED
        status = "FAILED" if why.delay is not None else "DEAD"
        return self._change(event, status)

    def _block(self, blocks: Collection[tuple[OutboxEvent, int, str | None]]) -> None:
        lanes = [event.lane for event, _, _ in blocks]
        if len(lanes) != len(set(lanes)):
            raise Violation("a statement blocks a key twice, which PostgreSQL refuses for ever")
        for event, seq, topic in blocks:
            self.blocks[event.lane] = Block(seq, event.seq, topic)

    def _set_aside(self, event: OutboxEvent) -> bool:
        row, block = self.rows[event.seq], self.blocks.get(event.lane)
        if block is None or row.seq <= block.seq or not row.claimable:
            return False
        row.aside = True
        return True

    # What others do

    def read_again(self, event: OutboxEvent) -> None:
        """Go back to an event, and read what is behind it again as well."""
        if event.shard in self.known:
            lowest = min(event.seq, self.gone_back.get(event.shard, event.seq))
            self.gone_back[event.shard] = lowest
            rows = self.rows.values()
            self.reread |= {r.seq for r in rows if r.shard == event.shard and r.seq >= event.seq}

    def release(self, lane: Lane) -> None:
        """Bring back the next rows of a key; forget the key when there are none."""
        behind = sorted(r.seq for r in self.rows.values() if r.lane == lane and r.aside)[:CHUNK]
        if not behind:
            del self.blocks[lane]
            return
        self.blocks[lane] = Block(behind[-1], behind[-1], None)
        for seq in behind:
            self.rows[seq].aside = False
        self.unread |= set(behind)

    def promote(self, row: OutboxRow) -> None:
        """Make a FAILED row due."""
        row.status = "NEW"
        self.unread.add(row.seq)

    def skip(self, row: OutboxRow) -> None:
        """Let a key go on past a DEAD row, as an operator does."""
        row.status = "SKIPPED"
        block = self.blocks.get(row.lane)
        if block is not None and block.event == row.seq:
            self.release(row.lane)

    def with_status(self, status: str) -> list[OutboxRow]:
        return [row for row in self.rows.values() if row.status == status]
