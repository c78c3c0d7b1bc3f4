"""The hand: events that are read and not settled, by the claims they came with."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from pillarbox.projector.store import OutboxEvent, Settlement


@dataclass(slots=True)
class _Claim:
    """An open claim, and those of its events that may still be in hand."""

    claim_id: UUID
    events: Sequence[OutboxEvent]
    left: int
    """How many of them are in no settlement."""
    size: int
    asked_at: float
    taken_at: float


@dataclass(slots=True)
class Hand:
    """Know what must not be read again (`seqs`), and which claims have ended."""

    seqs: set[int] = field(default_factory=set)
    size: int = 0
    """The bytes of the payloads that are in hand, and of some that are settled already."""
    _claims: dict[int, _Claim] = field(default_factory=dict)
    _settling: set[int] = field(default_factory=set)
    _epochs: dict[int, int] = field(default_factory=dict)
    _relied_on: dict[int, int] = field(default_factory=dict)
    _fenced: dict[int, int] = field(default_factory=dict)
    _left_lately: set[int] = field(default_factory=set)
    _asked_at: float = 0.0

    def __len__(self) -> int:
        return len(self._claims)

    def __contains__(self, seq: object) -> bool:
        return seq in self.seqs

    def asking(self, now: float) -> None:
        """Note that a claim is being asked for; it sees what was settled before."""
        self._asked_at = now
        self.seqs -= self._left_lately - self._claims.keys()
        self._left_lately.clear()

    def take(
        self,
        claim_id: UUID,
        events: Sequence[OutboxEvent],
        epochs: Mapping[int, int],
        now: float,
    ) -> None:
        """Take a claim's events in hand."""
        size = _size_of(events)
        claim = _Claim(claim_id, events, len(events), size, self._asked_at, now)
        self.size += size
        seqs = [event.seq for event in events]
        self._claims.update(dict.fromkeys(seqs, claim))
        self.seqs.update(seqs)
        self._epochs.update(epochs)

    def without_fenced(
        self, events: Sequence[OutboxEvent], epochs: Mapping[int, int]
    ) -> Sequence[OutboxEvent]:
        """Leave out events that were claimed under a lease which is known to be lost."""
        if not self._fenced:
            return events
        return [
            event for event in events if epochs[event.shard] > self._fenced.get(event.shard, -1)
        ]

    def age(self, event: OutboxEvent, now: float) -> float:
        """Return how many seconds ago an event was recorded that is in hand."""
        return event.age + now - self._claims[event.seq].asked_at

    def has_expired(self, event: OutboxEvent, now: float) -> bool:
        """Tell whether the time of an event in hand has passed, perhaps since it was claimed."""
        if event.expires_in is None:
            return False
        # Rather a little late than early: it was read before it came in hand.
        return event.expires_in <= now - self._claims[event.seq].taken_at

    def active(self) -> list[UUID]:
        """Name the open claims."""
        return list({claim.claim_id: None for claim in self._claims.values()})

    def holds(self, shards: frozenset[int]) -> bool:
        """Tell whether an event of these shards is in hand."""
        return any(event.shard in shards for event in self._events())

    def settling(self, settlement: Settlement) -> dict[int, int]:
        """Note what is being settled and which claims end with it; name the leases it relies on."""
        leaving = list(settlement.leaving())
        shards = {event.shard for event in (*settlement.counted, *leaving)}
        self._settling.update([event.seq for event in leaving])
        claims, ended = self._claims, settlement.ended
        for event in leaving:
            claim = claims[event.seq]
            claim.left -= 1
            if not claim.left:
                self._end(claim, ended)
        self._relied_on = {shard: self._epochs[shard] for shard in sorted(shards)}
        return self._relied_on

    def fenced(self, shards: frozenset[int]) -> frozenset[int]:
        """Note that a settlement found leases lost; leave out those that were taken again since."""
        self._fenced.update((shard, self._relied_on[shard]) for shard in shards)
        return frozenset(at for at in shards if self._epochs[at] == self._relied_on[at])

    def settled(self, settlement: Settlement, lost: frozenset[int] = frozenset()) -> int:
        """Let go of what is written; a claim on its way may have read it as it was before.

        Return how many events of lost shards went with it: what was dropped since is not among them.
        """
        leaving = list(settlement.leaving())
        fenced = [e for e in leaving if e.shard in lost and e.seq in self._settling] if lost else ()
        self._left_lately.update([event.seq for event in leaving if event.shard not in lost])
        settling, claims, begun = self._settling, self._claims, dict[int, _Claim]()
        for event in leaving:
            # Dropped meanwhile, it may be in hand again under another claim.
            if event.seq in settling:
                settling.remove(event.seq)
                claim = claims.pop(event.seq)
                if claim.left:
                    begun[id(claim)] = claim
        for claim in begun.values():
            self._shrink(claim)
        if lost:
            gone = {event.seq for event in leaving if event.shard in lost}
            self.seqs -= gone - claims.keys() - self._left_lately
        return len(fenced)

    def drop(self, shards: frozenset[int], settlement: Settlement) -> dict[int, OutboxEvent]:
        """Let go of the events of shards, also in a settlement to come; return them by number."""
        gone = {event.seq: event for event in self._events() if event.shard in shards}
        for seq in gone:
            claim = self._claims.pop(seq)
            if seq not in self._left_lately:
                self.seqs.discard(seq)
            if seq in self._settling:
                self._settling.remove(seq)
            else:
                claim.left -= 1
                if not claim.left:
                    self._end(claim, settlement.ended)
        settlement.purge(gone)
        return gone

    def _events(self) -> Iterator[OutboxEvent]:
        for claim in {id(claim): claim for claim in self._claims.values()}.values():
            yield from (event for event in claim.events if self._claims.get(event.seq) is claim)

    def _shrink(self, claim: _Claim) -> None:
        """Let a claim forget what is settled of it, when that is most: the rest may stay for long."""
        if claim.left * 2 > len(claim.events):
            return
        claim.events = [event for event in claim.events if self._claims.get(event.seq) is claim]
        self.size -= claim.size
        claim.size = _size_of(claim.events)
        self.size += claim.size

    def _end(self, claim: _Claim, ended: list[UUID]) -> None:
        self.size -= claim.size
        ended.append(claim.claim_id)


def _size_of(events: Sequence[OutboxEvent]) -> int:
    return sum(len(event.envelope.data or b"") for event in events)
