"""What becomes of a saga when something happens to it, as pure decisions.

A saga waits for one thing at a time: the reply to a step, or the reply to the undoing of a step. A
reply, the end of the time for it, and an operator's wish each lead to a `Move`: how the saga stands
afterwards, and which messages are to be sent. Whoever performs it does both in one transaction.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, assert_never


class State(StrEnum):
    """Where a saga stands. The last three are ends."""

    RUNNING = "RUNNING"
    COMPENSATING = "COMPENSATING"
    STUCK = "STUCK"
    COMPLETED = "COMPLETED"
    COMPENSATED = "COMPENSATED"
    CANCELLED = "CANCELLED"


OPEN: Final = (State.RUNNING, State.COMPENSATING, State.STUCK)
ENDED: Final = (State.COMPLETED, State.COMPENSATED, State.CANCELLED)


class Part(StrEnum):
    """The two halves of a step."""

    DO = "do"
    UNDO = "undo"


class Outcome(StrEnum):
    """What a half of a step has come to; it is recorded once, and never changed.

    `SENT` is an undoing whose reply nobody waits for. `ABANDONED` was given up by an operator while
    its reply was awaited.
    """

    OK = "ok"
    FAILED = "failed"
    TIMED_OUT = "timed-out"
    SKIPPED = "skipped"
    ABANDONED = "abandoned"
    SENT = "sent"


# The step has taken effect, or may have, or may yet: it is undone. One that was skipped has none, nor
# has one that failed, if it was sent once.
_MAY_HAVE_EFFECT: Final = (Outcome.OK, Outcome.TIMED_OUT, Outcome.ABANDONED)


class Verdict(StrEnum):
    """What a reply was to the saga that it names."""

    TAKEN = "taken"
    REPEATED = "repeated"
    LATE = "late"
    ENDED = "ended"
    FOREIGN = "foreign"


class Wish(StrEnum):
    """What an operator wants of a saga."""

    RESUME = "resume"
    CANCEL = "cancel"
    COMPENSATE = "compensate"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What the decisions need to know of a step; `tries` count the first message too."""

    name: str
    undoes: bool = False
    awaits_undo: bool = False
    tries: int = 1
    undo_tries: int = 1


Plan = tuple[StepPlan, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """A half of a step, by the step's number."""

    step: int
    part: Part


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a saga compensates: what its step has come to."""

    step: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Progress:
    """How a saga stands: its state, what it waits for, and the outcomes so far.

    `tries` counts the messages that were sent for the place it waits for, since it began to.
    """

    state: State
    waits_for: Place | None
    tries: int
    done: tuple[Outcome | None, ...]
    undone: tuple[Outcome | None, ...]
    cause: Cause | None = None

    def outcome(self, place: Place) -> Outcome | None:
        """Return what a half of a step has come to; None while it is open, or not begun."""
        return (self.done if place.part is Part.DO else self.undone)[place.step]

    def ending(self, place: Place, outcome: Outcome) -> "Progress":
        """Return the same with an outcome recorded."""
        if self.outcome(place) is not None:
            raise ValueError(f"{place} has an outcome already")
        if place.part is Part.DO:
            return replace(self, done=_with(self.done, place.step, outcome))
        return replace(self, undone=_with(self.undone, place.step, outcome))


@dataclass(frozen=True, slots=True)
class Move:
    """How a saga stands afterwards, and what is to be sent on the way, in this order."""

    progress: Progress
    sends: tuple[Place, ...] = ()
    verdict: Verdict = Verdict.TAKEN


def begin(plan: Plan) -> Move:
    """Begin with the first step."""
    nothing: tuple[Outcome | None, ...] = (None,) * len(plan)
    return _do(Progress(State.RUNNING, None, 0, nothing, nothing), 0)


def answered(plan: Plan, progress: Progress, place: Place, *, good: bool, sent: int) -> Move:
    """Take the reply to a half of a step, unless it comes twice or too late.

    `sent` counts all messages for it so far. If there are several, a bad reply to one says nothing of
    the others, which may take effect yet: the step is undone too.
    """
    if progress.state in ENDED:
        return Move(progress, verdict=Verdict.ENDED)
    known = progress.outcome(place)
    if known is not None:
        took = known in (Outcome.OK, Outcome.FAILED)
        return Move(progress, verdict=Verdict.REPEATED if took else Verdict.LATE)
    if place != progress.waits_for:
        return Move(progress, verdict=Verdict.FOREIGN)
    ended = progress.ending(place, Outcome.OK if good else Outcome.FAILED)
    if place.part is Part.UNDO:
        return _undo(plan, ended, place.step - 1)
    if good:
        return _go_on(plan, ended, place.step + 1)
    unsure = place.step if sent > 1 else None
    return _turn_back(plan, ended, Cause(place.step, Outcome.FAILED), place.step, unsure)


def timed_out(plan: Plan, progress: Progress) -> Move:
    """Send again what nobody has replied to, or give it up: go back, or stand STUCK."""
    place = progress.waits_for
    if place is None or progress.state not in (State.RUNNING, State.COMPENSATING):
        return Move(progress)
    step = plan[place.step]
    if progress.tries < (step.tries if place.part is Part.DO else step.undo_tries):
        return Move(replace(progress, tries=progress.tries + 1), (place,))
    if place.part is Part.UNDO:
        return stuck(progress)
    # Nobody knows whether the step took effect, or will: it is undone too.
    ended = progress.ending(place, Outcome.TIMED_OUT)
    return _turn_back(plan, ended, Cause(place.step, Outcome.TIMED_OUT), place.step)


def stuck(progress: Progress) -> Move:
    """Stand still until a reply or an operator comes."""
    return Move(replace(progress, state=State.STUCK))


def wished(plan: Plan, progress: Progress, wish: Wish) -> Move | None:
    """Do what an operator wants; None when the saga is not in a state for it."""
    place = progress.waits_for
    if place is None or progress.state in ENDED:
        return None
    match wish:
        case Wish.RESUME:
            state = State.RUNNING if place.part is Part.DO else State.COMPENSATING
            return Move(replace(progress, state=state, tries=1), (place,))
        case Wish.CANCEL:
            ended = progress.ending(place, Outcome.ABANDONED)
            return Move(replace(ended, state=State.CANCELLED, waits_for=None, tries=0))
        case Wish.COMPENSATE:
            if place.part is Part.UNDO:
                return None
            ended = progress.ending(place, Outcome.ABANDONED)
            return _turn_back(plan, ended, Cause(place.step, Outcome.ABANDONED), place.step)
        case Wish.SKIP:
            ended, is_undo = progress.ending(place, Outcome.SKIPPED), place.part is Part.UNDO
            step = place.step
            return _undo(plan, ended, step - 1) if is_undo else _go_on(plan, ended, step + 1)
        case _:
            assert_never(wish)


def _go_on(plan: Plan, progress: Progress, step: int) -> Move:
    if step < len(plan):
        return _do(progress, step)
    return Move(replace(progress, state=State.COMPLETED, waits_for=None, tries=0))


def _do(progress: Progress, step: int) -> Move:
    place = Place(step, Part.DO)
    return Move(replace(progress, state=State.RUNNING, waits_for=place, tries=1), (place,))


def _turn_back(
    plan: Plan, progress: Progress, cause: Cause, step: int, unsure: int | None = None
) -> Move:
    return _undo(plan, replace(progress, cause=cause), step, unsure)


def _undo(plan: Plan, progress: Progress, step: int, unsure: int | None = None) -> Move:
    """Undo what may have taken effect, the last first, up to the next reply that is awaited.

    The `unsure` step is undone whatever its outcome.
    """
    sends: list[Place] = []
    for number in range(step, -1, -1):
        may_have_effect = number == unsure or progress.done[number] in _MAY_HAVE_EFFECT
        if not (plan[number].undoes and may_have_effect):
            continue
        place = Place(number, Part.UNDO)
        sends.append(place)
        if plan[number].awaits_undo:
            waiting = replace(progress, state=State.COMPENSATING, waits_for=place, tries=1)
            return Move(waiting, tuple(sends))
        progress = progress.ending(place, Outcome.SENT)
    ended = replace(progress, state=State.COMPENSATED, waits_for=None, tries=0)
    return Move(ended, tuple(sends))


def _with(
    outcomes: tuple[Outcome | None, ...], step: int, outcome: Outcome
) -> tuple[Outcome | None, ...]:
    return (*outcomes[:step], outcome, *outcomes[step + 1 :])
