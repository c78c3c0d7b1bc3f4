"""Messages for tests of a bus."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from pillarbox.bus.outcome import PublishOutcome
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.testing.rig import Stored


def new_topic() -> str:
    """Return the name of a topic that nobody has used."""
    return f"t{uuid4().hex}.order"


def message(topic: str, number: int = 0, **changes: Any) -> MessageEnvelope:
    """Return an ordinary message with an id of its own."""
    plain = MessageEnvelope(
        event_id=str(uuid4()),
        event_type="OrderPaid",
        data=b'{"n":%d}' % number,
        topic=topic,
        key=f"order-{number}",
        source="shop",
        occurred_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        aggregate_type="Order",
        aggregate_id=f"order-{number}",
        aggregate_version=number,
        event_number=1,
    )
    return plain._replace(**changes)


def kinds(outcomes: Iterable[PublishOutcome]) -> list[str]:
    """Return the names of the outcomes' classes."""
    return [type(outcome).__name__ for outcome in outcomes]


def ids(messages: Sequence[MessageEnvelope] | Sequence[Stored]) -> list[str]:
    """Return the event ids of messages."""
    return [message.event_id for message in messages]
