"""What becomes of a message after a try, as a pure decision."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal, assert_never

from pillarbox.retry import RetryPolicy

HANDLER_FAILED: Final = "handler-failed"
HANDLER_ASKED: Final = "handler-asked"
CONTENT_MISMATCH: Final = "content-mismatch"
CRASHED: Final = "crashed"
STALE: Final = "stale"
BEHIND: Final = "behind"

Outcome = Literal["new", "duplicate", "dropped", "ignored", "failed", "waiting", "parked"]
"""What a try is counted as; what failed or waits is counted again when it comes back."""


# What a try came to.


@dataclass(frozen=True, slots=True)
class Applied:
    """The handler's effects are committed."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """The message was handled before, or waits in the table already."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """It is remembered as handled, without an effect."""

    reason: str


@dataclass(frozen=True, slots=True)
class KeyHeld:
    """It was not tried: others of its key wait in the table, and it belongs behind them."""


@dataclass(frozen=True, slots=True)
class SetAside:
    """It was parked in the transaction, without a try."""

    reason: str


@dataclass(frozen=True, slots=True)
class Untouched:
    """It was not tried: something before it must be finished first.

    With a time, whoever handles it stands still for now: it is kept in hand for so long.
    """

    after: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Suspected:
    """A process died while it was in hand; it was not tried."""


@dataclass(frozen=True, slots=True)
class Crashed:
    """It was alone in hand when a process died, and not for the first time; it was not tried."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The handler raised."""

    error_class: str
    message: str


@dataclass(frozen=True, slots=True)
class AskedToWait:
    """The handler asked for another try later."""

    after: timedelta
    message: str


@dataclass(frozen=True, slots=True)
class AskedToPark:
    """The handler asked for a person."""

    message: str


End = (
    Applied
    | Repeated
    | Dropped
    | KeyHeld
    | SetAside
    | Untouched
    | Suspected
    | Crashed
    | Failed
    | AskedToWait
    | AskedToPark
)
Trial = Failed | AskedToWait | AskedToPark
"""What counts as an attempt."""


# What is done about it.


@dataclass(frozen=True, slots=True)
class Finish:
    """Acknowledge it."""

    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Return:
    """Take it back as it was; `alone`, it gets the process for itself next time."""

    alone: bool = False


@dataclass(frozen=True, slots=True)
class Hold:
    """Keep it and its key in hand for so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Move it, and what is behind it, to the table for so many seconds."""

    seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Park it for a person."""

    reason: str


@dataclass(frozen=True, slots=True)
class Follow:
    """Move it to the table, behind the others of its key."""


Verdict = Finish | Return | Hold | Wait | GiveUp | Follow


@dataclass(frozen=True, slots=True)
class Rules:
    """How often a message is tried, and how long it may be held in hand."""

    retry: RetryPolicy
    hold_limit: float


_DECIDED: Final[Mapping[type, Verdict]] = {
    Applied: Finish("new"),
    Repeated: Finish("duplicate"),
    Dropped: Finish("dropped"),
    KeyHeld: Follow(),
    Crashed: GiveUp(CRASHED),
    SetAside: Finish("parked"),
    Untouched: Return(),
    Suspected: Return(alone=True),
}


def judge(
    end: End, *, attempt: int, held_for: float, rules: Rules, chance: random.Random
) -> Verdict:
    """Say what becomes of a message; `attempt` counts this try, `held_for` the seconds before it."""
    match end:
        case Untouched(timedelta() as after):
            return Hold(after.total_seconds())  # whatever the limit: no attempt is counted
        case Applied() | Repeated() | Dropped() | SetAside() | Untouched() | Suspected():
            return _DECIDED[type(end)]
        case KeyHeld() | Crashed():
            return _DECIDED[type(end)]
        case AskedToPark():
            return GiveUp(HANDLER_ASKED)
        case AskedToWait():
            last = attempt >= rules.retry.attempts
            seconds = None if last else end.after.total_seconds()
            return _later(seconds, HANDLER_ASKED, held_for, rules)
        case Failed():
            return _later(rules.retry.after(attempt, chance), HANDLER_FAILED, held_for, rules)
        case _:
            assert_never(end)


def _later(seconds: float | None, reason: str, held_for: float, rules: Rules) -> Verdict:
    """Keep in hand what comes soon; the table has what does not, so that no broker waits for it."""
    if seconds is None:
        return GiveUp(reason)
    return Wait(seconds, reason) if held_for + seconds > rules.hold_limit else Hold(seconds)
