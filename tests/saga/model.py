"""A small exhaustive model of the race between step, reply and time-out: every interleaving.

One saga of two steps: `reserve`, whose undoing is awaited and sent twice at most, and `charge`. The
decisions are those of the real machine; the model adds what lies around it: transactions that read
a row and write it later, a timer that may ring at any moment, a participant for each step with an
ordered channel to it, replies that travel in any order, may be lost, and may come twice.

`explore` visits all reachable states and returns the first violation, with the steps to it.
Variants switch single rules off, to show that the checks can fail.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, NamedTuple

from pillarbox.saga.machine import (
    ENDED,
    Move,
    Outcome,
    Part,
    Place,
    Plan,
    Progress,
    State,
    StepPlan,
    Verdict,
    answered,
    begin,
    timed_out,
)

PLAN: Final[Plan] = (
    StepPlan("reserve", undoes=True, awaits_undo=True, tries=2, undo_tries=2),
    StepPlan("charge", tries=1),
)


class Variant(Enum):
    """One rule, switched off."""

    NO_LOCK = "a transaction writes what it has read, whatever was committed meanwhile"
    NO_CAUSE = "a reply is taken for whatever is awaited, by its saga alone"
    NO_UNDO_OF_LATE = "a step that was not replied to in time is not undone"
    NO_UNDO_OF_REPEATED = "a step that failed is not undone, however often it was sent"
    NO_ORDER = "messages to one participant overtake each other"


class Budget(NamedTuple):
    """How many faults of each kind may still happen."""

    lost: int = 0
    doubled: int = 0


class Message(NamedTuple):
    """A message to a participant, or its reply; the number is its id."""

    number: int
    place: Place
    good: bool = True


class Hand(NamedTuple):
    """A transaction that has read the saga's row: for a reply, or for a timer."""

    read: Progress
    reply: Message | None = None


class World(NamedTuple):
    """The saga's row, the messages under way, what participants did, and open transactions."""

    row: Progress
    sent: int
    channels: tuple[tuple[Message, ...], ...]
    replies: tuple[Message, ...] = ()
    effects: tuple[bool, ...] = (False, False)
    hands: tuple[Hand, ...] = ()
    budget: Budget = Budget()


@dataclass(frozen=True)
class Violation:
    """A broken promise, and the shortest way to it."""

    what: str
    steps: tuple[str, ...]


class Next(NamedTuple):
    name: str
    world: World
    problem: str | None = None


def explore(budget: Budget, variant: Variant | None = None) -> tuple[int, Violation | None]:
    """Visit every reachable state; return how many there are, and the first violation."""
    first = send(World(begin(PLAN).progress, 0, ((), ()), budget=budget), begin(PLAN))
    came_from: dict[World, tuple[World, str] | None] = {first: None}
    queue = deque([first])
    while queue:
        world = queue.popleft()
        progress = False
        for step in nexts(world, variant):
            progress = progress or not step.name.startswith("fault")
            if step.problem is not None:
                return len(came_from), Violation(step.problem, (*path(came_from, world), step.name))
            if step.world not in came_from:
                came_from[step.world] = world, step.name
                queue.append(step.world)
        if not progress and (problem := unfinished(world)) is not None:
            return len(came_from), Violation(problem, path(came_from, world))
    return len(came_from), None


def path(came_from: dict[World, tuple[World, str] | None], world: World) -> tuple[str, ...]:
    names: list[str] = []
    while (origin := came_from[world]) is not None:
        world, name = origin
        names.append(name)
    return tuple(reversed(names))


def nexts(world: World, variant: Variant | None) -> Iterator[Next]:
    """Yield everything that can happen next."""
    yield from participants(world, variant)
    yield from faults(world)
    yield from begins(world, variant)
    yield from commits(world, variant)


def participants(world: World, variant: Variant | None) -> Iterator[Next]:
    """A participant takes the next message of its channel, has its effect, and replies."""
    for step, channel in enumerate(world.channels):
        places = range(len(channel)) if variant is Variant.NO_ORDER else range(min(len(channel), 1))
        for place in places:
            message = channel[place]
            rest = (*channel[:place], *channel[place + 1 :])
            # A participant that has done a command answers its repetition as it did the first time.
            may_fail = message.place.part is Part.DO and not world.effects[step]
            for good in (True, False) if may_fail else (True,):
                effects = list(world.effects)
                effects[step] = good and message.place.part is Part.DO
                yield Next(
                    f"{PLAN[step].name} takes {message.place.part} {message.number}: {good}",
                    world._replace(
                        channels=_with(world.channels, step, rest),
                        effects=tuple(effects),
                        replies=_sorted((*world.replies, message._replace(good=good))),
                    ),
                )


def faults(world: World) -> Iterator[Next]:
    budget = world.budget
    for place, reply in enumerate(world.replies):
        rest = (*world.replies[:place], *world.replies[place + 1 :])
        if budget.lost:
            less = world._replace(replies=rest, budget=budget._replace(lost=budget.lost - 1))
            yield Next(f"fault: the reply to {reply.number} is lost", less)
        if budget.doubled:
            more = budget._replace(doubled=budget.doubled - 1)
            twice = world._replace(replies=_sorted((*world.replies, reply)), budget=more)
            yield Next(f"fault: the reply to {reply.number} comes twice", twice)


def begins(world: World, variant: Variant | None) -> Iterator[Next]:
    """A transaction reads the row; with the lock, nobody else has it until the commit."""
    if len(world.hands) >= (2 if variant is Variant.NO_LOCK else 1):
        return
    for place, reply in enumerate(world.replies):
        rest = (*world.replies[:place], *world.replies[place + 1 :])
        hands = (*world.hands, Hand(world.row, reply))
        yield Next(
            f"read for the reply to {reply.number}", world._replace(replies=rest, hands=hands)
        )
    if world.row.state in (State.RUNNING, State.COMPENSATING) and not _has_timer(world):
        yield Next("read for a timer", world._replace(hands=(*world.hands, Hand(world.row))))


def commits(world: World, variant: Variant | None) -> Iterator[Next]:
    for place, hand in enumerate(world.hands):
        rest = (*world.hands[:place], *world.hands[place + 1 :])
        move = decide(hand, variant)
        yield Next(
            f"commit {'a timer' if hand.reply is None else f'the reply to {hand.reply.number}'}",
            send(world._replace(hands=rest, row=move.progress), move),
            broken(world.row, move),
        )


def decide(hand: Hand, variant: Variant | None) -> Move:
    """Ask the real machine; a variant tells it something else, or changes its answer."""
    if hand.reply is None:
        move = timed_out(PLAN, hand.read)
        late = move.progress.cause is not None and move.progress.cause.outcome is Outcome.TIMED_OUT
        if variant is Variant.NO_UNDO_OF_LATE and late and hand.read.cause is None:
            ended = replace(move.progress, state=State.COMPENSATED, waits_for=None, tries=0)
            return Move(ended)
        return move
    place = hand.reply.place
    if variant is Variant.NO_CAUSE and hand.read.waits_for is not None:
        place = hand.read.waits_for
    sent = 1 if variant is Variant.NO_UNDO_OF_REPEATED else hand.read.tries
    move = answered(PLAN, hand.read, place, good=hand.reply.good, sent=sent)
    return move if move.verdict is Verdict.TAKEN else Move(hand.read)


def send(world: World, move: Move) -> World:
    for place in move.sends:
        number = world.sent + 1
        message = Message(number, place)
        channel = (*world.channels[place.step], message)
        world = world._replace(sent=number, channels=_with(world.channels, place.step, channel))
    return world


def broken(row: Progress, move: Move) -> str | None:
    """Check a commit: an outcome stands for ever, and nothing is undone that was not done."""
    for number, step in enumerate(PLAN):
        for part in Part:
            place = Place(number, part)
            before, after = row.outcome(place), move.progress.outcome(place)
            if before is not None and after is not before:
                return f"outcome: {step.name} {part} was {before} and became {after}"
        undone = Place(number, Part.UNDO)
        if undone in move.sends and move.progress.done[number] is None:
            return f"undo: {step.name} is undone and has no outcome"
    ended = row.state in ENDED
    return f"end: {row.state} was left" if ended and move.progress.state is not row.state else None


def unfinished(world: World) -> str | None:
    """Check a world in which nothing but faults can happen: the effects fit the end."""
    state, effects = world.row.state, world.effects
    if state is State.COMPLETED and effects != (True, True):
        return f"effects: COMPLETED with {effects}"
    if state is State.COMPENSATED and effects[0]:
        return "effects: COMPENSATED with a reservation"
    if state not in (*ENDED, State.STUCK):
        return f"liveness: {state} for ever"
    return None


def _has_timer(world: World) -> bool:
    return any(hand.reply is None for hand in world.hands)


def _with(
    channels: tuple[tuple[Message, ...], ...], step: int, channel: tuple[Message, ...]
) -> tuple[tuple[Message, ...], ...]:
    return (*channels[:step], channel, *channels[step + 1 :])


def _sorted(replies: tuple[Message, ...]) -> tuple[Message, ...]:
    """Replies travel in any order: worlds that differ in it alone are one."""
    return tuple(sorted(replies, key=lambda reply: (reply.number, reply.good)))
