"""A small exhaustive model of the projector's protocol: every interleaving, every crash point.

Three events: `b` of key B with the lowest number, `a1` and `a2` of key A. Writers commit at any
time, `b` possibly after higher numbers were read; a writer's commit is not durable until some
synchronous commit follows it. Two projectors share one shard under a lease with an epoch. Messages
travel through a network that may deliver them late, also after their sender died. Faults (crashes,
expiries, lost acknowledgements, refusals, a database crash) are drawn from a budget.

A projector sends one event of a key at a time, or with `together` those of a batch one after the other
without waiting. Then the way to the broker keeps their order and has no gaps: what follows a message
that was not stored is not stored either.

`explore` visits all reachable states and returns the first violation, with the steps to it.
Variants switch single rules of the protocol off, to show that the checks can fail.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, TypeVar

T = TypeVar("T")

EVENTS: Final = ("b", "a1", "a2")  # in the order of their numbers
KEY: Final = {"b": "B", "a1": "A", "a2": "A"}
OPEN, VISIBLE, DURABLE, LOST = range(4)
NEW, SENT, FAILED, DEAD, DUE, ASIDE = "NSFDRA"
MAX_ATTEMPTS: Final = 2


class Variant(Enum):
    """One rule of the protocol, switched off."""

    NO_KEY_GUARD = "a failed event does not block its key"
    GOES_ON_AFTER_FAILURE = "the batch goes on after a failure of the same key"
    MARK_BEFORE_PUBLISH = "rows are marked SENT before they are published"
    NO_FENCE = "a settling write does not check the epoch"
    CLAIM_BEFORE_READ = "the claim is committed before the rows are read"
    CLAIMS_OVER_NEW_CONNECTION = "what was read over a lost connection is claimed over a new one"
    FORGETS_LATE_COMMITS = "the lower bound forgets transactions that were open"
    STORES_BEHIND_A_GAP = "sent together, a message is stored though one before it was not"


class Budget(NamedTuple):
    """How many faults of each kind may still happen."""

    crashes: int = 0
    expiries: int = 0
    lost_acks: int = 0
    refusals: int = 0
    database_crashes: int = 0


class Projector(NamedTuple):
    """What one projector holds in memory; a crash empties it."""

    epoch: int = 0  # the lease it believes to hold; 0 for none
    phase: str = "idle"  # idle, read, claimed
    batch: tuple[str, ...] = ()
    outcomes: tuple[
        tuple[str, str], ...
    ] = ()  # event -> flying, acked, refused, unknown, held back
    bound: int = -1  # rows up to here were read
    late: frozenset[str] = frozenset()  # open when the bound was set
    again: frozenset[str] = frozenset()  # read before, to be sent again


class State(NamedTuple):
    """The database, the broker, the network and both projectors."""

    commits: tuple[int, ...] = (OPEN, OPEN, OPEN)
    statuses: tuple[str, ...] = (NEW, NEW, NEW)
    attempts: tuple[int, ...] = (0, 0, 0)
    owner: int = -1
    epoch: int = 0
    expired: bool = False
    projectors: tuple[Projector, ...] = (Projector(), Projector())
    network: frozenset[tuple[int, int, str]] = frozenset()  # projector, epoch, event
    log: tuple[str, ...] = ()
    budget: Budget = Budget()
    together: bool = False  # several events of a key are in flight


@dataclass(frozen=True)
class Violation:
    """A broken promise, and the shortest way to it."""

    what: str
    steps: tuple[str, ...]


class Step(NamedTuple):
    name: str
    state: State
    problem: str | None = None


def explore(
    budget: Budget, variant: Variant | None = None, *, together: bool = False
) -> tuple[int, Violation | None]:
    """Visit every reachable state; return how many there are, and the first violation."""
    start = State(budget=budget, together=together)
    came_from: dict[State, tuple[State, str] | None] = {start: None}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        progress = False
        for step in steps(state, variant):
            progress = progress or not step.name.startswith("fault")
            problem = step.problem or broken(step.state)
            if problem is not None:
                return len(came_from), Violation(problem, (*path(came_from, state), step.name))
            if step.state not in came_from:
                came_from[step.state] = (state, step.name)
                queue.append(step.state)
        if not progress and (problem := unfinished(state)) is not None:
            return len(came_from), Violation(problem, path(came_from, state))
    return len(came_from), None


def path(came_from: dict[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    names: list[str] = []
    while (origin := came_from[state]) is not None:
        state, name = origin
        names.append(name)
    return tuple(reversed(names))


def broken(state: State) -> str | None:
    """Check what must hold in every state: order by first publication, and no ghosts."""
    first = state.log
    a1_lost = state.commits[EVENTS.index("a1")] == LOST
    if "a2" in first and not a1_lost and "a1" not in first[: first.index("a2")]:
        return "order: a2 was published before a1"
    ghosts = [e for e in first if state.commits[EVENTS.index(e)] == LOST]
    if ghosts:
        return f"ghost: {ghosts[0]} was published and its transaction is lost"
    for event, status in zip(EVENTS, state.statuses, strict=True):
        if status == SENT and event not in state.log:
            return f"loss: {event} is SENT and was never published"
    return None


def unfinished(state: State) -> str | None:
    """Check a state in which nothing but faults can happen: each event is settled, or blocked."""
    for place, event in enumerate(EVENTS):
        waits = state.commits[place] in (VISIBLE, DURABLE) and state.statuses[place] not in (
            SENT,
            DEAD,
        )
        if waits and not blocked(state, event):
            return f"loss: {event} waits for ever"
    return None


def steps(state: State, variant: Variant | None) -> Iterator[Step]:
    """Yield everything that can happen next."""
    yield from writers(state)
    yield from network(state, variant)
    yield from faults(state, variant)
    if FAILED in state.statuses:
        due = tuple(DUE if status == FAILED else status for status in state.statuses)
        yield Step("retry becomes due", state._replace(statuses=due))
    for who in (0, 1):
        yield from projector(state, who, variant)


def writers(state: State) -> Iterator[Step]:
    for place, event in enumerate(EVENTS):
        # The writers of key A wait for one another; b's writer is free.
        waits = event == "a2" and state.commits[1] == OPEN
        if state.commits[place] == OPEN and not waits:
            yield Step(
                f"{event} commits", state._replace(commits=put(state.commits, place, VISIBLE))
            )


def network(state: State, variant: Variant | None) -> Iterator[Step]:
    for message in sorted(state.network):
        who, epoch, event = message
        if ahead(state, message):
            continue
        rest = state._replace(network=state.network - {message})
        # Only first copies matter to the promises; leaving repeats out keeps the model small.
        stored = rest._replace(log=tuple(dict.fromkeys((*rest.log, event))))
        if variant is not Variant.STORES_BEHIND_A_GAP:
            rest = held_back(rest, message)
        yield Step(f"broker stores {event} of {who}", answer(stored, who, epoch, event, "acked"))
        if state.budget.lost_acks:
            for name, after in (("stores, ack lost", stored), ("never gets", rest)):
                unknown = answer(spend(after, "lost_acks"), who, epoch, event, "unknown")
                yield Step(f"fault: broker {name} {event} of {who}", unknown)
        if state.budget.refusals:
            refused = answer(spend(rest, "refusals"), who, epoch, event, "refused")
            yield Step(f"fault: broker refuses {event} of {who}", refused)


def ahead(state: State, message: tuple[int, int, str]) -> bool:
    """Tell whether a message of the same sender and key is on its way before this one."""
    who, epoch, event = message
    before = EVENTS[: EVENTS.index(event)]
    return any(KEY[e] == KEY[event] and (who, epoch, e) in state.network for e in before)


def held_back(state: State, message: tuple[int, int, str]) -> State:
    """Drop what is on its way behind a message that was not stored."""
    who, epoch, event = message
    for other in EVENTS[EVENTS.index(event) + 1 :]:
        behind = (who, epoch, other)
        if KEY[other] == KEY[event] and behind in state.network:
            state = state._replace(network=state.network - {behind})
            state = answer(state, who, epoch, other, "held back")
    return state


def answer(state: State, who: int, epoch: int, event: str, outcome: str) -> State:
    """Give a projector its answer, if it still waits for one."""
    waiting = state.projectors[who]
    if waiting.epoch != epoch or (event, "flying") not in waiting.outcomes:
        return state
    outcomes = tuple((e, outcome if e == event else o) for e, o in waiting.outcomes)
    return with_projector(state, who, waiting._replace(outcomes=outcomes))


def faults(state: State, variant: Variant | None) -> Iterator[Step]:
    budget = state.budget
    for who, one in enumerate(state.projectors):
        if budget.crashes and one != Projector():
            after = spend(state, "crashes")
            yield Step(f"fault: projector {who} dies", with_projector(after, who, Projector()))
    if state.owner >= 0 and not state.expired:
        gone = state.projectors[state.owner].epoch != state.epoch
        if gone:
            yield Step("lease expires, its owner is gone", state._replace(expired=True))
        elif budget.expiries:
            yield Step("fault: lease expires", spend(state, "expiries")._replace(expired=True))
    if budget.database_crashes and VISIBLE in state.commits:
        left = tuple(LOST if commit == VISIBLE else commit for commit in state.commits)
        after = spend(state, "database_crashes")._replace(commits=left)
        for who, one in enumerate(state.projectors):
            if variant is not Variant.CLAIMS_OVER_NEW_CONNECTION:
                after = with_projector(after, who, disconnected(one))
        yield Step("fault: database loses its unflushed tail", after)


def disconnected(one: Projector) -> Projector:
    """Forget what was read over a lost connection: the server may number rows anew."""
    fresh = one._replace(bound=-1, late=frozenset(), again=frozenset())
    return fresh._replace(phase="idle", batch=()) if one.phase == "read" else fresh


def projector(state: State, who: int, variant: Variant | None) -> Iterator[Step]:
    one = state.projectors[who]
    if one.epoch == 0:
        # Whoever comes first is called 0: the other way round is the same story.
        if (state.owner < 0 and who == 0) or state.expired:
            taken = flushed(state)._replace(owner=who, epoch=state.epoch + 1, expired=False)
            yield Step(f"{who} takes the lease", with_projector(taken, who, Projector(taken.epoch)))
    elif one.phase == "idle":
        yield from read(state, who, variant)
    elif one.phase == "read":
        yield from claim(state, who, variant)
    else:
        yield from send_or_settle(state, who, variant)


def read(state: State, who: int, variant: Variant | None) -> Iterator[Step]:
    """Take what is due and what is new above the bound; set aside what is blocked."""
    one = state.projectors[who]
    visible = [e for n, e in enumerate(EVENTS) if state.commits[n] in (VISIBLE, DURABLE)]
    found = [e for e in visible if in_range(state, one, e)]
    batch = tuple(e for e in found if not blocked(state, e) or variant is Variant.NO_KEY_GUARD)
    if not found:
        return
    late = frozenset(e for n, e in enumerate(EVENTS) if state.commits[n] == OPEN)
    if variant is Variant.FORGETS_LATE_COMMITS:
        late = frozenset()
    aside = marked(state.statuses, dict.fromkeys(set(found) - set(batch), ASIDE))
    known = one._replace(
        batch=batch,
        phase="read",
        bound=max(EVENTS.index(e) for e in visible),
        late=late,
        again=one.again - set(found),
    )
    name = f"{who} reads {'+'.join(batch) or 'only blocked rows'}"
    yield Step(name, with_projector(state._replace(statuses=aside), who, known))


def in_range(state: State, one: Projector, event: str) -> bool:
    place = EVENTS.index(event)
    if state.statuses[place] == DUE:
        return True
    unread = place > one.bound or event in one.late or event in one.again
    return state.statuses[place] == NEW and unread


def blocked(state: State, event: str) -> bool:
    earlier = EVENTS[: EVENTS.index(event)]
    return any(
        KEY[other] == KEY[event] and state.statuses[n] in (FAILED, DEAD)
        for n, other in enumerate(earlier)
    )


def claim(state: State, who: int, variant: Variant | None) -> Iterator[Step]:
    one = state.projectors[who]
    if not held(state, who) and variant is not Variant.NO_FENCE:
        yield Step(f"{who} finds its lease lost", with_projector(state, who, Projector()))
        return
    after = state if variant is Variant.CLAIM_BEFORE_READ else flushed(state)
    if variant is Variant.MARK_BEFORE_PUBLISH:
        after = after._replace(statuses=marked(after.statuses, dict.fromkeys(one.batch, SENT)))
    yield Step(f"{who} claims", with_projector(after, who, one._replace(phase="claimed")))


def send_or_settle(state: State, who: int, variant: Variant | None) -> Iterator[Step]:
    one = state.projectors[who]
    outcomes = dict(one.outcomes)
    sendable = [e for e in one.batch if may_send(state, one, e, variant)]
    for event in sendable:
        flying = with_projector(
            state, who, one._replace(outcomes=(*one.outcomes, (event, "flying")))
        )
        message = (who, one.epoch, event)
        yield Step(f"{who} sends {event}", flying._replace(network=state.network | {message}))
    if not sendable and "flying" not in outcomes.values():
        yield settle(state, who, variant)


def may_send(state: State, one: Projector, event: str, variant: Variant | None) -> bool:
    """One at a time per key unless together, and none after a failure of its key."""
    outcomes = dict(one.outcomes)
    if event in outcomes:
        return False
    before = [outcomes.get(e) for e in one.batch[: one.batch.index(event)] if KEY[e] == KEY[event]]
    if variant is Variant.GOES_ON_AFTER_FAILURE:
        return all(outcome not in (None, "flying") for outcome in before)
    good = {"acked", "flying"} if state.together else {"acked"}
    return good.issuperset(before)


def settle(state: State, who: int, variant: Variant | None) -> Step:
    one = state.projectors[who]
    fenced = not held(state, who)
    if fenced and variant is not Variant.NO_FENCE:
        return Step(f"{who} is fenced", with_projector(state, who, Projector()))
    changes, attempts, problem = {}, list(state.attempts), None
    for event, outcome in one.outcomes:
        place = EVENTS.index(event)
        if outcome == "acked":
            changes[event] = SENT
        elif outcome == "refused":
            attempts[place] += 1
            changes[event] = DEAD if attempts[place] >= MAX_ATTEMPTS else FAILED
        if event in changes and fenced:
            problem = f"fence: {who} settled {event} under a lease that it had lost"
        if event in changes and state.statuses[place] == SENT and changes[event] != SENT:
            problem = f"status: {event} left SENT"
    unsent = frozenset(e for e in one.batch if e not in changes)
    statuses = released(marked(state.statuses, changes), changes)
    settled = flushed(state)._replace(statuses=statuses, attempts=tuple(attempts))
    rest = one._replace(phase="idle", batch=(), outcomes=(), again=one.again | unsent)
    return Step(f"{who} settles", with_projector(settled, who, rest), problem)


def released(statuses: tuple[str, ...], changes: dict[str, str]) -> tuple[str, ...]:
    """Bring back what was set aside behind an event that is now sent."""
    free = {KEY[event] for event, status in changes.items() if status == SENT}
    return tuple(
        DUE if status == ASIDE and KEY[event] in free else status
        for event, status in zip(EVENTS, statuses, strict=True)
    )


def spend(state: State, fault: str) -> State:
    left: int = getattr(state.budget, fault) - 1
    return state._replace(budget=state.budget._replace(**{fault: left}))


def held(state: State, who: int) -> bool:
    """Tell whether the lease row still has this projector's epoch."""
    return state.owner == who and state.epoch == state.projectors[who].epoch


def flushed(state: State) -> State:
    """Commit synchronously: whatever was visible is durable now."""
    return state._replace(commits=tuple(DURABLE if c == VISIBLE else c for c in state.commits))


def marked(statuses: tuple[str, ...], changes: dict[str, str]) -> tuple[str, ...]:
    return tuple(changes.get(e, s) for e, s in zip(EVENTS, statuses, strict=True))


def with_projector(state: State, who: int, one: Projector) -> State:
    return state._replace(projectors=put(state.projectors, who, one))


def put(values: tuple[T, ...], place: int, value: T) -> tuple[T, ...]:
    return (*values[:place], value, *values[place + 1 :])
