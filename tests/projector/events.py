"""Events for tests of what stands between a claim and its settlement."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from random import Random
from uuid import UUID

from pillarbox.bus.outcome import PublishOutcome, Unknown
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.projector.ready import Batch
from pillarbox.projector.store import OutboxEvent, Settled, Settlement
from pillarbox.projector.work import Work
from pillarbox.retry import RetryPolicy

LOST = Unknown("late", "no answer")


def event(
    seq: int,
    key: str = "k",
    *,
    topic: str = "orders",
    shard: int = 0,
    attempts: int = 0,
    blocked: bool = False,
    expires_in: float | None = None,
    unreadable: bool = False,
    tenant: str = "acme",
    data: bytes | None = None,
) -> OutboxEvent:
    """Make an event."""
    return OutboxEvent(
        seq,
        shard,
        (tenant, key),
        topic,
        attempts,
        blocked=blocked,
        blocker=False,
        expires_in=expires_in,
        age=0.0,
        envelope=MessageEnvelope(f"event-{seq}", "Noted", topic=topic, data=data),
        unreadable=unreadable,
    )


def work(*, together: bool = False, attempts: int = 3, batch_size: int = 100) -> Work:
    """Make an empty hand."""
    policy = RetryPolicy(attempts=attempts, delay=1.0, delay_max=9.0)
    return Work(
        together=together,
        policy=policy,
        chance=Random(1),
        batch_size=batch_size,
        bytes_in_hand=1_000_000,
    )


def claim(
    hand: Work,
    *events: OutboxEvent,
    number: int = 1,
    epochs: Mapping[int, int] | None = None,
    ahead: AbstractSet[str] = frozenset(),
    now: float = 0.0,
) -> list[int]:
    """Claim these events; return the numbers of those that are to be sent."""
    hand.asking(now)
    return numbers(hand.claimed(UUID(int=number), events, epochs or {0: 1, 1: 1}, now, ahead=ahead))


def taken(hand: Work, now: float = 0.0) -> Batch:
    """Return the next batch."""
    batch = hand.next_batch(now)
    assert batch is not None
    return batch


def publish(hand: Work, *outcomes: PublishOutcome, now: float = 0.0) -> list[int]:
    """Have the next batch answered like this, all alike or one by one; return its numbers."""
    batch = taken(hand, now)
    answers = outcomes if len(outcomes) > 1 else outcomes * len(batch.events)
    hand.answered(batch, answers, now)
    return numbers(batch.events)


def send(hand: Work, now: float = 0.0) -> list[int]:
    """Return the numbers of the next batch."""
    return [sent.seq for sent in batch.events] if (batch := hand.next_batch(now)) else []


def settle(hand: Work, result: Settled | None = None) -> Settlement:
    """Write what there is to write."""
    settlement, _ = hand.take_settlement()
    hand.settled(settlement, result or Settled())
    return settlement


def numbers(events: Sequence[OutboxEvent]) -> list[int]:
    """Return the numbers of events."""
    return [one.seq for one in events]
