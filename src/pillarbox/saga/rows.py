"""A saga between its rows and its progress: what the tables hold, as values."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Row

from pillarbox.event.envelope import MessageEnvelope
from pillarbox.saga.machine import Cause, Outcome, Part, Place, Progress, State, Wish

_HEADERS: Final = ("correlationid", "traceparent", "tracestate")


@dataclass(slots=True)
class StepRow:
    """A half of a step that was begun: the ids of its messages, its outcome, its reply."""

    place: Place
    messages: list[str] = field(default_factory=list)
    outcome: Outcome | None = None
    reply: MessageEnvelope | None = None
    stored: bool = False


@dataclass(slots=True)
class Instance:
    """One saga in hand: its row is locked until the transaction ends."""

    tenant_id: str
    saga_id: UUID
    name: str
    version: int
    start: MessageEnvelope
    step_names: list[str]
    progress: Progress
    revision: int = 0
    failures: int = 0
    wish: Wish | None = None
    steps: dict[Place, StepRow] = field(default_factory=dict)

    def place_of(self, message_id: str | None) -> Place | None:
        """Return what a message of this saga was to do or undo."""
        for place, row in self.steps.items():
            if message_id in row.messages:
                return place
        return None

    @property
    def replies(self) -> Iterable[tuple[Place, MessageEnvelope]]:
        """The replies so far, good and bad."""
        for place, row in self.steps.items():
            if row.reply is not None:
                yield place, row.reply


def start_values(envelope: MessageEnvelope) -> dict[str, Any]:
    """Return what is kept of a start event."""
    return {
        "type": envelope.event_type,
        "schema_version": envelope.schema_version,
        "key": envelope.key,
        "topic": envelope.topic,
        "source": envelope.source,
        "headers": {name: envelope.headers[name] for name in _HEADERS if name in envelope.headers},
        "payload": envelope.payload,
    }


def instance_of(row: Row[Any], steps: Iterable[Row[Any]]) -> Instance:
    """Make a saga out of its rows."""
    names: list[str] = list(row.steps)
    begun = {found.place: found for found in (_step_of(each) for each in steps)}
    return Instance(
        row.tenant_id,
        row.saga_id,
        row.name,
        row.version,
        _start_of(row),
        names,
        _progress_of(row, names, begun),
        row.revision,
        row.failures,
        None if row.wish is None else Wish(row.wish),
        begun,
    )


def _progress_of(row: Row[Any], names: list[str], begun: dict[Place, StepRow]) -> Progress:
    def outcomes(part: Part) -> tuple[Outcome | None, ...]:
        places = (Place(number, part) for number in range(len(names)))
        return tuple(begun[place].outcome if place in begun else None for place in places)

    return Progress(
        State(row.state),
        None if row.step is None else Place(names.index(row.step), Part(row.part)),
        row.tries,
        outcomes(Part.DO),
        outcomes(Part.UNDO),
        None if row.cause is None else Cause(names.index(row.cause_step), Outcome(row.cause)),
    )


def _step_of(row: Row[Any]) -> StepRow:
    reply = None
    if row.reply_id is not None:
        reply = MessageEnvelope(
            row.reply_id,
            row.reply_type,
            row.reply,
            tenant_id=row.tenant_id,
            schema_version=row.reply_version,
        )
    return StepRow(
        Place(row.number, Part(row.part)),
        list(row.messages),
        None if row.outcome is None else Outcome(row.outcome),
        reply,
        stored=True,
    )


def _start_of(row: Row[Any]) -> MessageEnvelope:
    kept = row.start
    return MessageEnvelope(
        row.start_id,
        kept["type"],
        kept["payload"],
        topic=kept["topic"],
        key=kept["key"],
        tenant_id=row.tenant_id,
        source=kept["source"],
        schema_version=kept["schema_version"],
        headers=kept["headers"],
    )
