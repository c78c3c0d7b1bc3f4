"""What becomes of a command, decided from what the store has seen."""

from dataclasses import dataclass
from typing import assert_never

from pillarbox.idempotency.answer import Answer
from pillarbox.idempotency.errors import (
    AnswerNotKept,
    CommandInProgress,
    IdempotencyError,
    IdempotencyKeyReused,
    TooManyKeys,
)
from pillarbox.idempotency.settings import IdempotencySettings


@dataclass(frozen=True, slots=True)
class Claimed:
    """The key is new, or its time was over; its row is ours, at this place if it has one."""

    place: str | None = None


@dataclass(frozen=True, slots=True)
class Busy:
    """Another transaction holds the key and has not ended."""


@dataclass(frozen=True, slots=True)
class OverQuota:
    """The caller has too many keys; no row was written."""


@dataclass(frozen=True, slots=True)
class Running:
    """A committed row says that the command is being executed, and its lease has not run out."""

    fingerprint: str


@dataclass(frozen=True, slots=True)
class Done:
    """The command took effect, and this was its answer."""

    fingerprint: str
    answer: Answer


Sighting = Claimed | Busy | OverQuota | Running | Done


@dataclass(frozen=True, slots=True)
class Execute:
    """Run the command."""


@dataclass(frozen=True, slots=True)
class Replay:
    """Give the recorded answer."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer with a problem."""

    error: IdempotencyError


Decision = Execute | Replay | Refuse


def decide(seen: Sighting, fingerprint: str, settings: IdempotencySettings) -> Decision:
    """Say what to do with a command, given what stands under its key."""
    match seen:
        case Claimed():
            return Execute()
        case Busy():
            return Refuse(CommandInProgress(settings.retry_after_seconds))
        case OverQuota():
            return Refuse(TooManyKeys(settings.quota))
        case Running(other) | Done(other) if other != fingerprint:
            return Refuse(IdempotencyKeyReused())
        case Running():
            return Refuse(CommandInProgress(settings.retry_after_seconds))
        case Done(_, answer):
            return Refuse(AnswerNotKept(answer.status)) if answer.body is None else Replay(answer)
        case _:
            assert_never(seen)
