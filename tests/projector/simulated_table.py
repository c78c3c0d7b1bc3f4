"""A table with transactions, read by `Reader` as `claim.sql`, `sweep.sql` and `discover.sql` do."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from pillarbox.projector.postgres.reader import Plan, Reader, Row, Snapshot
from pillarbox.projector.turns import Pair
from tests.projector.simulated_outbox import Violation

SHARDS = 3
TENANTS = ("acme", "bolt", "cork")
KEYS = tuple((tenant, f"{tenant}-{number}") for tenant in TENANTS for number in range(4))


@dataclass(slots=True)
class Noted:
    """A row of the table; `back` is the transaction that brings it back, while that is open."""

    seq: int
    key: str
    tenant_id: str
    shard: int
    txid: int
    claimable: bool = True
    back: int | None = None


@dataclass(slots=True)
class ReaderSimulation:
    """Write, claim, settle, bring back, lose and regain at random; see that nothing is missed."""

    chance: Random
    next_txid: int = 100
    seq: int = 0
    rows: dict[int, Noted] = field(default_factory=dict)
    open: dict[int, set[str]] = field(default_factory=dict)
    hand: set[int] = field(default_factory=set)
    owned: set[int] = field(default_factory=lambda: set(range(SHARDS)))
    passed_over: frozenset[str] = frozenset()
    reader: Reader = field(default_factory=Reader)
    answered_late: int | None = None
    sweeps: int = 0

    def run(self, steps: int) -> None:
        """Take random steps, then see that every row is found."""
        actions: list[tuple[Callable[[], object], float]] = [
            (self.begin, 5), (self.insert, 12), (self.commit, 6), (self.claim, 10),
            (self.sent, 8), (self.fail, 2), (self.bring_back, 3), (self.answer_late, 1),
            (self.lose, 1), (self.regain, 2), (self.reconnect, 0.3), (self.pause, 1),
        ]  # fmt: skip
        kinds, weights = zip(*actions, strict=True)
        for action in self.chance.choices(kinds, weights, k=steps):
            action()
        self.end()

    def end(self) -> None:
        while self.open:
            self.commit()
        self.regain()
        self.passed_over = frozenset()
        quiet = 0
        for _ in range(20 + 3 * len(self.rows)):
            quiet = 0 if self.claim() else quiet + 1
            if quiet > 1 and not len(self.reader.turns):
                break
        missed = [r.seq for r in self.rows.values() if r.claimable and r.seq not in self.hand]
        if missed:
            raise Violation(f"loss: {missed} are never read")

    # Writers

    def begin(self) -> None:
        if len(self.open) < 4:
            self.open[self.next_txid] = set()
            self.next_txid += 1

    def insert(self) -> None:
        """Insert rows for a key that no other transaction holds; the id is drawn before the number."""
        if not self.open:
            self.begin()
        txid = self.chance.choice(list(self.open))
        held = {key for other, keys in self.open.items() if other != txid for key in keys}
        tenant_id, key = self.chance.choice(KEYS)
        if key in held:
            return
        self.open[txid].add(key)
        for _ in range(self.chance.choice([1, 1, 2, 12])):
            self.seq += 1
            shard = KEYS.index((tenant_id, key)) % SHARDS
            self.rows[self.seq] = Noted(self.seq, key, tenant_id, shard, txid)

    def commit(self) -> None:
        """End a transaction, now and then by rolling back."""
        if self.open:
            txid = self.chance.choice(list(self.open))
            del self.open[txid]
            if self.chance.random() < 0.1:
                self.rows = {s: r for s, r in self.rows.items() if r.txid != txid}
            for row in self.rows.values():
                if row.back == txid:
                    row.txid, row.back, row.claimable = txid, None, True

    def bring_back(self) -> None:
        """Release a row in a transaction that may commit late."""
        away = [row for row in self.rows.values() if not row.claimable and row.back is None]
        if away and self.open:
            self.chance.choice(away).back = self.chance.choice(list(self.open))

    # The projector

    def sent(self) -> None:
        for seq in self.chance.sample(sorted(self.hand), min(len(self.hand), 6)):
            self.hand.discard(seq)
            del self.rows[seq]

    def fail(self) -> None:
        """Settle a row in a way that leaves it in the table."""
        if self.hand:
            seq = self.chance.choice(sorted(self.hand))
            self.hand.discard(seq)
            self.rows[seq].claimable = False

    def answer_late(self) -> None:
        """Have a row come back while the answer to its settlement is on its way."""
        if not self.hand:
            return
        row, sweeps = self.rows[self.chance.choice(sorted(self.hand))], self.sweeps
        row.txid, self.answered_late = self.next_txid, row.seq
        self.next_txid += 1
        while self.chance.random() < 0.5:
            self.claim()
        self.answered_late = None
        self.hand.discard(row.seq)
        # Work has FAILED rows read again; others are found by the feed alone.
        if self.sweeps > sweeps or self.chance.random() < 0.5:
            self.reader.read_again(row.shard, row.tenant_id, row.seq)

    def lose(self) -> None:
        """Lose a shard; an answer about one of its rows may come later."""
        if self.owned:
            shard = self.chance.choice(sorted(self.owned))
            mine = [seq for seq in sorted(self.hand) if self.rows[seq].shard == shard]
            self.owned.discard(shard)
            self.hand.difference_update(mine)
            self.reader.lose([shard])
            for seq in mine[:1]:
                self.reader.read_again(shard, self.rows[seq].tenant_id, seq)

    def regain(self) -> None:
        self.owned = set(range(SHARDS))

    def reconnect(self) -> None:
        self.reader.forget()

    def pause(self) -> None:
        self.passed_over = frozenset(self.chance.sample(TENANTS, self.chance.choice([0, 0, 1, 2])))

    # The statements

    def claim(self) -> bool:
        """Claim; tell whether something was taken, or may be by the next claim."""
        if shards := self.reader.undiscovered(self.owned):
            pairs = self.pairs([r for r in self.visible() if r.shard in shards])
            self.sweeps += 1
            self.reader.discovered(shards, self.snapshot(), pairs)
        since = self.reader.since
        if since is None:
            return False
        plan = self.reader.plan(since, self.chance.choice([1, 8, 24, 64]), self.passed_over)
        if strange := [pair for pair in plan.pairs if pair.shard not in self.owned]:
            raise Violation(f"lease: {strange} is read and not owned")
        feed = [r for r in self.visible() if r.shard in self.owned and is_new(r.txid, since)]
        if len(feed) > plan.fits:
            self.sweeps += 1
            self.reader.swept(self.snapshot(), self.pairs(feed))
            return True
        if self.chance.random() < 0.1:
            return True  # too many bytes: nothing is used
        return self.digest(plan, feed)

    def digest(self, plan: Plan, feed: list[Noted]) -> bool:
        rows: list[Row] = [(r.seq, r.shard, r.tenant_id, 0) for r in feed]
        for turn, (pair, quota) in enumerate(zip(plan.pairs, plan.quotas, strict=True), 1):
            mine = [
                row
                for row in self.visible()
                if (row.shard, row.tenant_id) == pair[:2] and row.seq > pair.after
            ]
            rows += [(r.seq, r.shard, r.tenant_id, turn) for r in mine[:quota]]
        in_hand = self.hand | self.let_go()
        places = self.reader.digest(
            plan, self.snapshot(), rows, in_hand=in_hand, passed_over=self.passed_over
        )
        self.take([rows[place][0] for place in places])
        return bool(places)

    def let_go(self) -> set[int]:
        """Have a row leave the hand, to be read again, while a claim is on its way."""
        others = sorted(self.hand - {self.answered_late})
        if not others or self.chance.random() < 0.8:
            return set()
        row = self.rows[self.chance.choice(others)]
        self.hand.discard(row.seq)
        self.reader.read_again(row.shard, row.tenant_id, row.seq)
        return {row.seq}

    def take(self, seqs: list[int]) -> None:
        """Take rows in hand; none twice, none of a paused tenant, none before one of its key."""
        if len(seqs) != len(set(seqs)) or self.hand & set(seqs):
            raise Violation(f"twice: {seqs} are taken, {self.hand} are in hand")
        for place, seq in enumerate(seqs):
            row = self.rows[seq]
            if row.tenant_id in self.passed_over:
                raise Violation(f"pause: {seq} of {row.tenant_id} is taken")
            for other in self.visible():
                passed = other.key == row.key and other.seq < seq
                if passed and other.seq not in self.hand and other.seq not in seqs[:place]:
                    raise Violation(f"order: {seq} was read before {other.seq}")
        self.hand |= set(seqs)

    def visible(self) -> list[Noted]:
        rows = (row for row in self.rows.values() if row.claimable and row.txid not in self.open)
        return sorted(rows, key=lambda row: row.seq)

    def snapshot(self) -> Snapshot:
        listed = ",".join(map(str, self.open))
        return Snapshot.parse(f"{min(self.open, default=self.next_txid)}:{self.next_txid}:{listed}")

    def pairs(self, rows: list[Noted]) -> list[Pair]:
        lowest: dict[tuple[int, str], int] = {}
        for row in rows:
            lowest.setdefault((row.shard, row.tenant_id), row.seq)
        return [Pair(shard, tenant, seq - 1) for (shard, tenant), seq in lowest.items()]


def is_new(txid: int, since: Snapshot) -> bool:
    """Tell whether a row has become claimable since a snapshot."""
    return txid >= int(since.xmax) or str(txid) in since.open
