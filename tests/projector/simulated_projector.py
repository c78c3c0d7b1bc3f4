"""A projector in small steps: `Work` between a simulated outbox and a simulated broker.

Each step is one that the loop's tasks take between two waits, so that every overlap can happen.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

from pillarbox.projector.ready import Batch
from pillarbox.projector.store import OutboxEvent, Settled, Settlement, Suspects
from pillarbox.projector.work import Work
from pillarbox.retry import RetryPolicy
from tests.projector.simulated_broker import Broker
from tests.projector.simulated_outbox import OutboxRow, SimulatedOutbox, Violation

SHARDS = 2
TOPICS = ("orders", "bills")
TENANTS = ("acme", "quiet")
KEYS = tuple((TENANTS[number // 2], f"k{number}") for number in range(4))
BATCHES = (2, 4)
HAND = 20
CALLS = 3


@dataclass(slots=True)
class Asked:
    """A claim on its way: asked for, then read, then digested."""

    claim_id: UUID
    epochs: Mapping[int, int]
    limit: int
    read: bool = False
    events: list[OutboxEvent] | None = None
    fed: frozenset[int] = frozenset()


@dataclass(slots=True)
class Settling:
    """A settlement on its way: taken, then written at least once, then told."""

    settlement: Settlement
    epochs: Mapping[int, int]
    result: Settled | None = None


@dataclass(slots=True)
class Simulation:
    """Take random steps; raise `Violation` when a promise is broken."""

    chance: Random
    together: bool
    now: float = 0.0
    seq: int = 0
    published: set[int] = field(default_factory=set)
    asked: Asked | None = None
    settling: Settling | None = None
    shut: frozenset[tuple[str, str]] = frozenset()
    epochs: dict[int, int] = field(default_factory=dict)
    claims: dict[UUID, set[int]] = field(default_factory=dict)
    met: set[int] = field(default_factory=set)
    made: list[Batch] = field(default_factory=list)
    outbox: SimulatedOutbox = field(init=False)
    broker: Broker = field(init=False)
    work: Work = field(init=False)

    def __post_init__(self) -> None:
        self.epochs = dict.fromkeys(range(SHARDS), 1)
        self.outbox = SimulatedOutbox(dict(self.epochs))
        self.broker = Broker(self.chance, self.together, self.stored)
        policy = RetryPolicy(attempts=3, delay=1.0, delay_max=9.0)
        self.work = Work(
            together=self.together,
            policy=policy,
            chance=self.chance,
            batch_size=self.chance.choice(BATCHES),
            bytes_in_hand=1_000_000,
        )

    def run(self, steps: int) -> None:
        """Take steps with faults, then without until everything is settled."""
        actions: list[tuple[Callable[[], None], int]] = [
            (self.write, 8), (self.claim, 12), (self.send, self.chance.choice([2, 12])), (self.broker.step, 6), (self.call, 8),
            (self.answer, 8), (self.settle, 12), (self.promote, 3), (self.decide, 2),
            (self.lose_lease, 1), (self.keep, 2), (self.spill, 1), (self.weather, 3),
            (self.pass_time, 4),
        ]  # fmt: skip
        kinds, weights = zip(*actions, strict=True)
        for action in self.chance.choices(kinds, weights, k=steps):
            action()
        self.heal()

    # The world

    def write(self) -> None:
        for _ in range(self.chance.randint(1, 3)):
            self.seq += 1
            number = self.chance.randrange(len(KEYS))
            row = OutboxRow(
                self.seq, number % SHARDS, KEYS[number], self.chance.choice((*TOPICS, TOPICS[0]))
            )
            if self.chance.random() < 0.06:
                row.expires_at = self.now + self.chance.choice([0.0, 1.0, 10.0])
            row.unreadable = self.chance.random() < 0.03
            if self.chance.random() < 0.15:
                self.broker.bad[self.seq] = self.chance.randint(1, 4)
            self.outbox.insert(row)

    def weather(self) -> None:
        self.broker.down = self.chance.random() < 0.25
        self.broker.missing = set(self.chance.choices(TOPICS, k=self.chance.choice([0, 0, 1])))
        self.shut = frozenset([("*", TOPICS[1])] if self.chance.random() < 0.2 else [])

    def pass_time(self) -> None:
        self.now += self.chance.choice([0.05, 0.2, 6.0])
        self.outbox.now = self.now

    def promote(self) -> None:
        for row in self.outbox.with_status("FAILED"):
            if self.chance.random() < 0.5:
                self.outbox.promote(row)
        self.release_topics()

    def release_topics(self) -> None:
        for lane, block in list(self.outbox.blocks.items()):
            if block.topic is not None and ("*", block.topic) not in self.shut:
                self.outbox.release(lane)

    def decide(self) -> None:
        for row in self.outbox.with_status("DEAD"):
            if row.seq not in self.work.hand and row.expires_at is None:
                self.outbox.skip(row)

    # The broker

    def stored(self, event: OutboxEvent) -> None:
        if event.seq not in self.published:
            for row in self.outbox.rows.values():
                before = row.lane == event.lane and row.seq < event.seq
                if before and row.seq not in self.published and not row.given_up(self.now):
                    raise Violation(f"order: {event.seq} was published before {row.seq}")
        self.published.add(event.seq)

    def send(self) -> None:
        """Make a batch; its call begins when those of earlier ones have, which may have been answered."""
        if len(self.broker.calls) + len(self.made) < CALLS and (
            batch := self.work.next_batch(self.now, filled=self.chance.random() < 0.5)
        ):
            self.made.append(batch)

    def call(self) -> None:
        if not self.made:
            return
        batch = self.work.starting(self.made.pop(0))
        if strange := [e.seq for e in batch.events if e.seq not in self.work.hand]:
            raise Violation(f"hand: {strange} is sent and not in hand")
        if odd := [e.seq for e in batch.events if e.unreadable]:
            raise Violation(f"unreadable: {odd} is sent")
        self.broker.publish(batch)

    def answer(self) -> None:
        if self.broker.calls:
            call = self.chance.choice(self.broker.calls)
            self.work.answered(call.batch, self.broker.finish(call), self.now)

    def spill(self) -> None:
        if self.work.topics:
            self.work.spill(self.work.topics)

    # Claims

    def claim(self) -> None:
        """Ask, read and digest, one after the other."""
        if self.asked is None:
            if limit := self.work.room(HAND, self.now):
                self.work.asking(self.now)
                self.outbox.gone_back.clear()
                self.asked = Asked(UUID(int=self.chance.getrandbits(128)), dict(self.epochs), limit)
        elif not self.asked.read:
            self.asked.read = True
            self.asked.events = self.outbox.read(self.asked.epochs, self.asked.limit)
            read = {event.seq for event in self.asked.events or ()}
            self.asked.fed = frozenset(read & self.outbox.unread)
            self.outbox.unread -= read
        else:
            self.digest(self.asked)
            self.asked = None

    def digest(self, asked: Asked) -> None:
        lost = {shard for shard, at in asked.epochs.items() if self.epochs.get(shard) != at}
        self.outbox.known -= lost
        events = [e for e in self.not_met(asked) if e.shard not in lost]
        if twice := [e.seq for e in events if self.outbox.rows[e.seq].status == "SENT"]:
            raise Violation(f"twice: {twice} are SENT and taken again")
        self.work.shut = self.shut
        ahead = frozenset(self.chance.choices(TENANTS, k=self.chance.choice([0, 0, 1])))
        self.work.claimed(asked.claim_id, events, asked.epochs, self.now, ahead=ahead)
        if left := {event.seq for event in events if event.seq in self.work.hand}:
            self.claims[asked.claim_id] = left

    def not_met(self, asked: Asked) -> list[OutboxEvent]:
        """Leave out, as the reader does, what is in hand and what is behind a row to read again."""
        hand, rows, read = self.work.hand, self.outbox.rows, asked.events or ()
        for seq in [seq for seq in self.met if seq not in hand]:
            self.outbox.read_again(self.outbox.event(rows[seq]))
        self.met = {seq for seq in self.met | asked.fed if seq in hand}
        back = self.outbox.gone_back
        behind = {event.seq for event in read if event.seq >= back.get(event.shard, event.seq + 1)}
        self.outbox.reread |= behind
        return [event for event in read if event.seq not in hand and event.seq not in behind]

    # Settling

    def settle(self) -> None:
        """Take, write and tell, one after the other; an answer may be lost in between."""
        if self.settling is None:
            if self.work.to_settle:
                self.settling = Settling(*self.work.take_settlement())
                self.check_claims(self.settling.settlement)
        elif self.settling.result is None or self.chance.random() < 0.1:
            self.settling.result = self.outbox.settle(
                self.settling.settlement, self.settling.epochs
            )
        else:
            self.tell(self.settling.settlement, self.settling.result)
            self.settling = None

    def check_claims(self, settlement: Settlement) -> None:
        """See that an event has one outcome, and a claim ends with its last one."""
        leaving = [event.seq for event in settlement.leaving()]
        if len(leaving) != len(set(leaving)):
            raise Violation(f"outcome: two for one event in {leaving}")
        for claim_id, left in list(self.claims.items()):
            left -= set(leaving)
            if bool(left) == (claim_id in settlement.ended):
                raise Violation(f"claim: {left} left, ended {claim_id in settlement.ended}")
            if not left:
                del self.claims[claim_id]

    def tell(self, settlement: Settlement, result: Settled) -> None:
        again, _ = self.work.settled(settlement, result)
        for left in self.claims.values():
            left -= {seq for seq in left if seq not in self.work.hand}
        for event in again:
            self.outbox.read_again(event)

    # Leases

    def lose_lease(self) -> None:
        """Another takes a shard, and loses it again."""
        self.outbox.epochs[self.chance.randrange(SHARDS)] += 1

    def keep(self) -> None:
        lost = frozenset(s for s, at in self.epochs.items() if self.outbox.epochs[s] != at)
        if lost:
            self.work.drop(lost)
            for left in self.claims.values():
                left -= {seq for seq in left if self.outbox.rows[seq].shard in lost}
            self.outbox.known -= lost
            self.epochs = dict(self.outbox.epochs)
            if self.chance.random() < 0.5:
                self.work.suspect(self.suspects(lost))

    def suspects(self, shards: frozenset[int]) -> Suspects:
        """Name events that a dead owner may have had in flight."""
        rows = [row.seq for row in self.outbox.rows.values() if row.claimable]
        mine = [seq for seq in rows if self.outbox.rows[seq].shard in shards]
        few = frozenset(mine[: self.chance.choice([1, 1, 3])])
        return Suspects(few, self.chance.choice([1, 2, 4, 8]))

    # The end

    def heal(self) -> None:
        """With everything well again, everything is settled soon."""
        self.broker.down, self.broker.faults, self.broker.missing = False, 0.0, set()
        self.broker.bad, self.shut = {}, frozenset()
        for _ in range(40 + 6 * len(self.outbox.rows)):
            for action in (self.keep, self.decide, self.promote, self.claim, self.send,
                           self.call, self.answer, self.settle, self.pass_time):  # fmt: skip
                action()
        left = [r.seq for r in self.outbox.rows.values() if r.status not in ("SENT", "SKIPPED")]
        if left := [seq for seq in left if not self.outbox.rows[seq].given_up(self.now)]:
            raise Violation(f"loss: {left} never arrive")
        if len(self.work.hand) or self.claims or self.outbox.blocks:
            raise Violation(f"stuck: {len(self.work.hand)} in hand, {self.outbox.blocks}")
        if never := [r.seq for r in self.outbox.with_status("SENT") if r.seq not in self.published]:
            raise Violation(f"loss: {never} are SENT and were never published")
