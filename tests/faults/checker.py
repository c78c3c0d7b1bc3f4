"""Say which promises a history breaks. Imports nothing of the product.

Each `_i…` function checks one invariant and yields what breaks it; `check` runs them all.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from tests.faults.history import Committed, Copy, History, LeaseChange, Row, StatusChange

SHOWN: Final = 5
FINAL: Final = ("SENT", "FAILED", "DEAD")
TROUBLED: Final = ("FAILED", "DEAD")
# From each status, where a write may lead; SENT is final, and nobody decides on DEAD in a run.
ALLOWED: Final = {
    "NEW": {"NEW", "PUBLISHING", "SENT", "FAILED", "DEAD"},
    "PUBLISHING": {"NEW", "PUBLISHING", "SENT", "FAILED", "DEAD"},
    "FAILED": {"NEW", "PUBLISHING", "SENT", "FAILED", "DEAD"},
    "SENT": set[str](),
    "DEAD": set[str](),
}
MAX_ATTEMPTS: Final = 5


class Violation(NamedTuple):
    """A broken invariant, with the ids that show it."""

    invariant: str
    what: str
    ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """The violations of a run and what it consisted of."""

    violations: Sequence[Violation]
    committed: int
    rolled_back: int
    lost: int
    copies: int
    duplicates: int
    unanswered: int
    changed_hands: int

    def __str__(self) -> str:
        shown = [
            f"{found.invariant}: {found.what}: {', '.join(found.ids[:SHOWN])} ({len(found.ids)})"
            for found in self.violations
        ]
        return (
            f"{self.committed} committed, {self.rolled_back} rolled back, {self.lost} lost with the "
            f"database's tail, {self.copies} copies, {self.duplicates} duplicates, "
            f"{self.unanswered} batches unanswered, {self.changed_hands} leases changed hands\n"
            + "\n".join(shown or ["no violation"])
        )


def check(history: History) -> Report:
    """Check I1 to I4 and I7 to I14 at rest."""
    ids = Counter(copy.message_id for copy in history.log)
    return Report(
        violations=[found for invariant in INVARIANTS for found in invariant(history)],
        committed=len(history.committed),
        rolled_back=len(history.rolled_back),
        lost=len(history.visible - _ids(history.committed)),
        copies=len(history.log),
        duplicates=len(history.log) - len(ids),
        unanswered=sum(step.unknown > 0 for step in history.steps),
        changed_hands=sum(change.old_member != change.new_member for change in history.leases),
    )


def _broken(invariant: str, what: str, ids: Iterable[str]) -> Iterator[Violation]:
    found = tuple(sorted(ids))
    if found:
        yield Violation(invariant, what, found)


def _i0_database(history: History) -> Iterator[Violation]:
    """Make sure of the ground: the database kept what it acknowledged as durable."""
    known = _ids(history.committed)
    yield from _broken("A1", "durable commits are gone", history.acknowledged - known)


def _i1_atomic_capture(history: History) -> Iterator[Violation]:
    known, rows = _ids(history.committed), _ids(history.rows)
    yield from _broken("I1", "committed without an outbox row", known - rows)
    yield from _broken("I1", "outbox rows without their transaction", rows - known)
    yield from _broken("I1", "rolled back, yet in the outbox", history.rolled_back & rows)
    expected = {one.message_id: (one.tenant, one.key, one.topic) for one in history.committed}
    yield from _broken(
        "I1",
        "outbox rows that differ from what was recorded",
        (
            row.message_id
            for row in history.rows
            if expected.get(row.message_id) not in (None, (row.tenant, row.key, row.topic))
        ),
    )


def _i2_no_loss(history: History) -> Iterator[Violation]:
    published = {copy.message_id for copy in history.log}
    troubled = {row.message_id: row.error for row in history.rows if row.status in TROUBLED}
    lost = _ids(history.committed) - published - troubled.keys()
    yield from _broken("I2", "committed and never published", lost)
    yield from _broken(
        "I2", "FAILED or DEAD without a reason", (i for i, error in troubled.items() if not error)
    )


def _i3_no_ghost(history: History) -> Iterator[Violation]:
    known = _ids(history.committed)
    ghosts = {str(copy.message_id) for copy in history.log if copy.message_id not in known}
    yield from _broken("I3", "published without a commit", ghosts)


def _i4_order(history: History) -> Iterator[Violation]:
    first = first_copies(history.log)
    troubled = {row.message_id for row in history.rows if row.status in TROUBLED}
    for (tenant, key), events in _by_key(history.committed).items():
        name = f"{tenant}/{key}"
        numbers = [event.n for event in events]
        if numbers != list(range(1, len(numbers) + 1)):
            yield Violation("I4", f"the ledger of {name} has gaps", (str(numbers[:SHOWN]),))
        sent = [(event, first[event.message_id]) for event in events if event.message_id in first]
        for (one, early), (other, late) in pairwise(sent):
            if not _precedes(early, late):
                yield Violation(
                    "I4",
                    f"{name}: {other.n} was published before {one.n}",
                    (one.message_id, other.message_id),
                )
        last = max((event.n for event, _ in sent), default=0)
        missing = (
            event.message_id for event in events if event.n < last and event.message_id not in first
        )
        yield from _broken("I4", f"{name} has gaps in the log", set(missing) - troubled)


def _precedes(early: Copy, late: Copy) -> bool:
    """Tell whether one message stands before another; over two logs, as far as time can tell."""
    if early.log == late.log:
        return early.offset < late.offset
    # A key stays in its partition; only another topic may bring it to another log.
    return early.topic != late.topic and early.at <= late.at


def _i7_content(history: History) -> Iterator[Violation]:
    expected = {one.message_id: (one.topic, one.sha256) for one in history.committed}
    headers = {row.message_id: row.headers for row in history.rows}
    bodies, missing, differing = set[str](), set[str](), set[str]()
    first: dict[str, tuple[tuple[str, str], ...]] = {}
    for copy in history.log:
        if copy.message_id not in expected:
            continue
        if expected[copy.message_id] != (copy.topic, copy.sha256):
            bodies.add(copy.message_id)
        named = {name.lower(): value for name, value in copy.headers}
        captured = headers.get(copy.message_id, {})
        if any(named.get(name.lower()) != value for name, value in captured.items()):
            missing.add(copy.message_id)
        if first.setdefault(copy.message_id, copy.headers) != copy.headers:
            differing.add(copy.message_id)
    yield from _broken("I7", "topic or bytes differ from what was captured", bodies)
    yield from _broken("I7", "headers differ from what was captured", missing)
    yield from _broken("I7", "headers differ between two copies", differing)


def _i8_stable_identity(history: History) -> Iterator[Violation]:
    expected: dict[str, tuple[str, ...]] = {}
    for one in history.committed:
        identity = (one.tenant, one.key, str(one.n))
        if expected.setdefault(one.message_id, identity) != identity:
            yield Violation("I8", "one id for two events", (one.message_id,))
    twice = Counter((one.tenant, one.key, one.n) for one in history.committed)
    yield from _broken("I8", "two ids for one event", (str(i) for i, n in twice.items() if n > 1))
    unnamed = (f"{copy.log}@{copy.offset}" for copy in history.log if copy.message_id is None)
    yield from _broken("I8", "messages without an id", unnamed)
    changed = {
        copy.message_id
        for copy in history.log
        if copy.message_id in expected and copy.identity != expected[copy.message_id]
    }
    yield from _broken("I8", "an id with another event's identity", changed)


def _i9_single_owner(history: History) -> Iterator[Violation]:
    epochs: dict[tuple[str, int], int] = {}
    for change in history.leases:
        place = f"{change.place[0]}/{change.place[1]} at {change.at:.3f}"
        known = epochs.get(change.place, -1)
        if change.new_epoch is not None:
            if change.new_epoch < known:
                yield Violation("I9", "an epoch fell", (place,))
            if _gained(change) and change.new_epoch <= known:
                yield Violation("I9", "an owner came without a new epoch", (place,))
            epochs[change.place] = max(known, change.new_epoch)
        if _taken_early(change, history):
            yield Violation("I9", "an unexpired lease was taken from its owner", (place,))


def _gained(change: LeaseChange) -> bool:
    return change.new_member is not None and change.new_member != change.old_member


def _taken_early(change: LeaseChange, history: History) -> bool:
    """Tell a theft from a gift: an owner may give its own lease away at any time."""
    if change.old_member in (None, change.new_member) or change.old_expires_at is None:
        return False
    own = history.members.get(change.old_member or "") == change.projector
    return not own and change.at < change.old_expires_at


def _i10_fencing(history: History) -> Iterator[Violation]:
    stale = (
        change.message_id
        for change in history.changes
        if change.new_status in FINAL
        and history.members.get(change.owner or "", "nobody") != change.projector
    )
    yield from _broken("I10", "settled by one who did not hold the lease", set(stale))


def _i11_sent_means_acked(history: History) -> Iterator[Violation]:
    first = first_copies(history.log)
    sent = (row.message_id for row in history.rows if row.status == "SENT")
    yield from _broken("I11", "SENT and not in the log", (i for i in sent if i not in first))
    early = {
        change.message_id
        for change in history.changes
        if change.new_status == "SENT"
        and change.message_id in first
        and change.at < first[change.message_id].at
    }
    yield from _broken("I11", "SENT before the broker had it", early)
    ahead: Counter[str] = Counter()
    for step in history.steps:
        ahead[step.projector] += step.sent - step.accepted
        if ahead[step.projector] > 0:
            yield Violation("I11", "more settled as SENT than were accepted", (step.projector,))
            ahead[step.projector] = 0


def _i12_monotone_status(history: History) -> Iterator[Violation]:
    status: dict[str, str] = {}
    for change in history.changes:
        yield from _wrong_step(change, status.get(change.message_id, "NEW"))
        status[change.message_id] = change.new_status
    unseen = (
        row.message_id for row in history.rows if row.status != status.get(row.message_id, "NEW")
    )
    yield from _broken("I12", "a status that no write led to", unseen)
    hasty = (
        row.message_id
        for row in history.rows
        if row.status == "DEAD" and row.attempts < MAX_ATTEMPTS and "expired" not in str(row.error)
    )
    yield from _broken("I12", "DEAD before its attempts were used up", hasty)


def _wrong_step(change: StatusChange, before: str) -> Iterator[Violation]:
    step = f"{change.old_status} to {change.new_status}"
    if change.old_status != before:
        yield Violation("I12", f"{step} although it was {before}", (change.message_id,))
    if change.new_status not in ALLOWED[change.old_status]:
        yield Violation("I12", f"{step} is not allowed", (change.message_id,))
    if change.new_attempts < change.old_attempts:
        yield Violation("I12", "attempts fell", (change.message_id,))


def _i13_no_stuck_row(history: History) -> Iterator[Violation]:
    stuck = (row.message_id for row in history.rows if row.status not in FINAL)
    yield from _broken("I13", "still waiting at the end", stuck)


def _i14_bounded_duplicates(history: History) -> Iterator[Violation]:
    copies = Counter(copy.message_id for copy in history.log if copy.message_id is not None)
    # An answer that did not come leaves a message to be sent again, as a broker's fault does.
    unanswered = history.faults.broker + sum(step.unknown > 0 for step in history.steps)
    faults = unanswered + history.faults.projector + history.faults.database
    many = (i for i, n in copies.items() if n > 1 + faults)
    yield from _broken("I14", f"more copies than {faults} faults explain", many)
    if history.claims is None:
        return
    claims = {row.message_id: history.claims.get(row.seq, 0) for row in history.rows}
    unclaimed = (i for i, n in copies.items() if n > claims.get(i, n) + unanswered)
    yield from _broken("I14", "more copies than claims", unclaimed)


INVARIANTS: Final = (
    _i0_database,
    _i1_atomic_capture,
    _i2_no_loss,
    _i3_no_ghost,
    _i4_order,
    _i7_content,
    _i8_stable_identity,
    _i9_single_owner,
    _i10_fencing,
    _i11_sent_means_acked,
    _i12_monotone_status,
    _i13_no_stuck_row,
    _i14_bounded_duplicates,
)


def first_copies(log: Sequence[Copy]) -> dict[str, Copy]:
    """Find the first copy of each id; logs are given each in its order."""
    first: dict[str, Copy] = {}
    for copy in log:
        if copy.message_id is None:
            continue
        known = first.get(copy.message_id)
        if known is None or (known.log != copy.log and copy.at < known.at):
            first[copy.message_id] = copy
    return first


def _ids(items: Iterable[Committed | Row]) -> set[str]:
    return {item.message_id for item in items}


def _by_key(committed: Iterable[Committed]) -> dict[tuple[str, str], list[Committed]]:
    keys: dict[tuple[str, str], list[Committed]] = defaultdict(list)
    for event in sorted(committed, key=lambda one: one.n):
        keys[event.tenant, event.key].append(event)
    return keys
