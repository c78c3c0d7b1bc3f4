"""Events for tests of what stands between a claim and its settlement."""

from collections.abc import Mapping, Sequence
from random import Random
from uuid import UUID

from pillarbox.event.envelope import MessageEnvelope
from pillarbox.projector.retry import RetryPolicy
from pillarbox.projector.store import OutboxEvent, Settled, Settlement
from pillarbox.projector.work import Work


def event(
    seq: int,
    key: str = "k",
    *,
    topic: str = "orders",
    shard: int = 0,
    attempts: int = 0,
    blocked: bool = False,
    expired: bool = False,
) -> OutboxEvent:
    """Make an event of the tenant acme."""
    envelope = MessageEnvelope(f"event-{seq}", "Noted", topic=topic)
    return OutboxEvent(
        seq, shard, ("acme", key), topic, attempts, blocked, False, expired, 0.0, envelope
    )


def work(*, together: bool = False, attempts: int = 3, batch_size: int = 100) -> Work:
    """Make an empty hand."""
    policy = RetryPolicy(attempts=attempts, delay=1.0, delay_max=9.0)
    return Work(together=together, policy=policy, chance=Random(1), batch_size=batch_size)


def claim(
    hand: Work, *events: OutboxEvent, number: int = 1, epochs: Mapping[int, int] | None = None
) -> None:
    """Claim these events."""
    hand.asking()
    hand.claimed(UUID(int=number), events, epochs or {0: 1, 1: 1})


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
