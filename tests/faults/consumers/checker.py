"""Say which promises a history of consumers breaks. Imports nothing of the product.

Each `_i…` function checks one invariant and yields what breaks it; `check` runs them all.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from tests.faults.checker import SHOWN, Violation
from tests.faults.consumers.history import Account, Deposit, Effect, History, Holder, Place

# A batch is done again with savepoints when one of its messages fails, and then one by one.
CALLS_PER_DELIVERY: Final = 3
ATTEMPT: Final = "inbox_attempt"


@dataclass(frozen=True, slots=True)
class Report:
    """The violations of a run and what it consisted of."""

    violations: Sequence[Violation]
    published: int
    effects: int
    calls: int
    duplicates: int
    retried: int

    def __str__(self) -> str:
        shown = [
            f"{found.invariant}: {found.what}: {', '.join(found.ids[:SHOWN])} ({len(found.ids)})"
            for found in self.violations
        ]
        return (
            f"{self.published} published, {self.effects} effects, {self.calls} calls of handlers, "
            f"{self.duplicates} duplicates removed, {self.retried} done at a later attempt\n"
            + "\n".join(shown or ["no violation"])
        )


def check(history: History) -> Report:
    """Check I5, I6, I13, I14 and I18 at rest."""
    return Report(
        violations=[found for invariant in INVARIANTS for found in invariant(history)],
        published=len(history.published),
        effects=len(history.effects),
        calls=sum(history.calls.values()),
        duplicates=history.duplicates,
        retried=sum(effect.attempt > 1 for effect in history.effects),
    )


def _broken(invariant: str, what: str, places: Iterable[tuple[str, ...]]) -> Iterator[Violation]:
    found = tuple(sorted("/".join(place) for place in places))
    if found:
        yield Violation(invariant, what, found)


def _i5_effect_once(history: History) -> Iterator[Violation]:
    effects = Counter(_place(effect) for effect in history.effects)
    expected = _expected(history)
    yield from _broken("I5", "in effect twice", (p for p, n in effects.items() if n > 1))
    yield from _broken("I5", "in effect, though nobody published it", effects.keys() - expected)
    yield from _broken("I5", "never in effect", expected - effects.keys())
    yield from _broken("I5", "in effect and not in the inbox", effects.keys() - history.inbox)
    yield from _broken("I5", "in the inbox without an effect", history.inbox.keys() - effects)
    yield from _broken("I5", "twice in the inbox", (p for p, n in history.inbox.items() if n > 1))
    balances = {
        (consumer, tenant, account): sum(deposit.amount for deposit in deposits)
        for (tenant, account), deposits in _by_account(history).items()
        for consumer in history.consumers
    }
    kept = {holder: account.balance for holder, account in history.accounts.items()}
    wrong = (h for h in balances.keys() | kept.keys() if balances.get(h, 0) != kept.get(h, 0))
    yield from _broken("I5", "a balance that is not the sum of its deposits", wrong)


def _i6_effective_order(history: History) -> Iterator[Violation]:
    applied: dict[Holder, list[Effect]] = defaultdict(list)
    for effect in history.effects:
        applied[effect.consumer, effect.tenant, effect.account].append(effect)
    deposits = _by_account(history)
    unordered, sums, trails = set[Holder](), set[Holder](), set[Holder]()
    for holder, effects in applied.items():
        numbers = [effect.n for effect in effects]
        if numbers != list(range(1, len(numbers) + 1)):
            unordered.add(holder)
        running = accumulate(deposit.amount for deposit in deposits.get(holder[1:], ()))
        if [effect.balance for effect in effects] != [*running][: len(effects)]:
            sums.add(holder)
        account = history.accounts.get(holder, Account(0, ""))
        if account.trail != trail(effect.message_id for effect in effects):
            trails.add(holder)
    yield from _broken("I6", "deposits applied out of order, or with gaps", unordered)
    yield from _broken("I6", "a running balance that went another way", sums)
    yield from _broken("I6", "a trail that its effects do not explain", trails)


def _i13_no_stuck_row(history: History) -> Iterator[Violation]:
    """Find rows that nobody will come back to.

    A member that begins with a message which others have finished, and dies, leaves the mark of its
    attempt behind; clean-up takes it. Without a fault there is none.
    """
    stuck = (
        tuple(row)
        for row in history.leftovers
        if row.table != ATTEMPT or not history.faults or row.place not in history.inbox
    )
    yield from _broken("I13", "still there at the end", stuck)


def _i14_bounded_duplicates(history: History) -> Iterator[Violation]:
    """Bound the calls of a handler: by a delivery, and by those that faults and attempts brought."""
    if history.faults is None:
        return
    attempts: dict[Place, int] = defaultdict(lambda: 1)
    for effect in history.effects:
        attempts[_place(effect)] = max(effect.attempt, attempts[_place(effect)])
    many = (
        place
        for place, calls in history.calls.items()
        if calls > _most_calls(attempts[place], history.faults)
    )
    yield from _broken("I14", f"more calls than {history.faults} faults explain", many)
    if history.faults == 0 and history.duplicates:
        yield Violation("I14", f"{history.duplicates} duplicates without a fault")


def _most_calls(attempts: int, faults: int) -> int:
    return 1 if attempts == 1 and faults == 0 else CALLS_PER_DELIVERY * (attempts + faults)


def _i18_inbox_scope(history: History) -> Iterator[Violation]:
    """Find what one tenant or consumer took from another by the same id."""
    wanted: dict[str, set[Place]] = defaultdict(set)
    for place in _expected(history):
        wanted[place[2]].add(place)
    done = {_place(effect) for effect in history.effects}
    for message_id, places in wanted.items():
        missing = places - done
        if missing and places & done:
            yield from _broken("I18", f"{message_id} took effect for others alone", missing)


INVARIANTS: Final = (
    _i5_effect_once,
    _i6_effective_order,
    _i13_no_stuck_row,
    _i14_bounded_duplicates,
    _i18_inbox_scope,
)


def trail(message_ids: Iterable[str]) -> str:
    """Return what an account's trail must be after these messages, in this order."""
    made = ""
    for message_id in message_ids:
        made = hashlib.md5(f"{made}/{message_id}".encode(), usedforsecurity=False).hexdigest()
    return made


def _expected(history: History) -> set[Place]:
    return {
        (consumer, deposit.tenant, deposit.message_id)
        for deposit in history.published
        for consumer in history.consumers
    }


def _by_account(history: History) -> dict[tuple[str, str], list[Deposit]]:
    found: dict[tuple[str, str], list[Deposit]] = defaultdict(list)
    for deposit in sorted(history.published, key=lambda one: one.n):
        found[deposit.tenant, deposit.account].append(deposit)
    return found


def _place(effect: Effect) -> Place:
    return effect.consumer, effect.tenant, effect.message_id
