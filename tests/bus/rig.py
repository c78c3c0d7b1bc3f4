"""What the tests of every bus share: messages, and what a broker stored of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol
from uuid import uuid4

from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.outcome import PublishOutcome
from pillarbox.event.envelope import MessageEnvelope

LIMIT = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Stored:
    """A message as the broker keeps it."""

    key: str | None
    body: bytes | None
    headers: dict[str, str]

    @property
    def event_id(self) -> str:
        return self.headers["event_id"]


class Rig(Protocol):
    """Make buses on one broker, and read what is stored there."""

    @property
    def name(self) -> str: ...

    def bus(self, *, limit: timedelta = LIMIT, address: str | None = None) -> MessageBus: ...

    async def read(self, topic: str) -> list[Stored]: ...


def new_topic() -> str:
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


def kinds(outcomes: Sequence[PublishOutcome]) -> list[str]:
    return [type(outcome).__name__ for outcome in outcomes]


def ids(messages: Sequence[MessageEnvelope] | Sequence[Stored]) -> list[str]:
    return [message.event_id for message in messages]
