"""What one session's running transaction will record, and the moment it does.

Rows are written once, just before the outermost commit, after all business rows. Savepoints are
respected: what was added or raised inside one that rolls back is forgotten. After a rollback an
event stays with its aggregate exactly when the aggregate keeps its state: a new or a plain object
does, a loaded one is reverted by the session. `listeners.py` calls these methods.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, inspect, text
from sqlalchemy.orm import Session, SessionTransaction, object_session

from pillarbox.errors import TenantMismatch, UnitOfWorkError
from pillarbox.event.aggregate import (
    AggregateRoot,
    RaisedEvent,
    forget_events,
    next_raise_number,
    raised_events,
    watch_events,
)
from pillarbox.outbox.mapped import is_deleted, is_mapped, raise_version, raiser_of, version_of
from pillarbox.outbox.postponed import PostponedEvent
from pillarbox.outbox.row import EventRow, row_of_raised
from pillarbox.outbox.settings import CaptureSettings
from pillarbox.outbox.wakeup import Wakeup, wakeup_of
from pillarbox.outbox.write import write_events
from pillarbox.tenancy import DEFAULT_TENANT, enter_tenant

SETTINGS: Final = "pillarbox"
TENANT: Final = "pillarbox.tenant"
HELD_TENANT: Final = "pillarbox.held_tenant"
POSTPONE: Final = "pillarbox.postpone"
"""Under this name a session's `info` has whoever may take over an event at its commit."""
_CAPTURE: Final = "pillarbox.capture"


@dataclass(frozen=True, slots=True)
class _Mark:
    """Where a transaction or savepoint began: what came later belongs to it."""

    raise_number: int
    rows: tuple[EventRow, ...]
    aggregates: dict[int, AggregateRoot]
    written: dict[int, AggregateRoot]
    versions: dict[int, tuple[AggregateRoot, Any]]
    captured: frozenset[int]


class SessionCapture:
    """Collect the events of one session, from aggregates and from manual adds."""

    def __init__(self, session: Session, settings: CaptureSettings) -> None:
        self.session = session
        self.settings = settings
        self.transaction_id: str | None = None
        self.closed = False
        """Whether the last transaction was closed, with neither commit nor rollback."""
        self._rows: list[EventRow] = []
        self._aggregates: dict[int, AggregateRoot] = {}
        self._written: dict[int, AggregateRoot] = {}
        self._versions: dict[int, tuple[AggregateRoot, Any]] = {}
        self._captured: set[int] = set()
        self._marks: dict[SessionTransaction, _Mark] = {}
        self._wakeups: set[Wakeup] = set()
        self._wrote_early = False
        self._committed = False
        self._join_running_transaction()

    def add(self, rows: Iterable[EventRow]) -> None:
        """Buffer rows that were added by hand; they are written just before the commit."""
        self._rows.extend(rows)

    def track(self, aggregate: AggregateRoot) -> None:
        """Record this aggregate's events at the commit; harmless when it is tracked already."""
        self._aggregates[id(aggregate)] = aggregate

    def watch(self, aggregate: AggregateRoot) -> None:
        """Track an aggregate of this session as soon as it has raised an event."""
        watch_events(aggregate, self._raised)

    def _raised(self, aggregate: AggregateRoot) -> None:
        if object_session(aggregate) is self.session:  # it may have left since it was watched
            if not self.session.in_transaction():
                self.session.begin()  # so that a rollback is told, and forgets the event
            self.track(aggregate)

    def began(self, transaction: SessionTransaction) -> None:
        """Note where a transaction or a savepoint begins."""
        self._marks[transaction] = _Mark(
            next_raise_number(),
            tuple(self._rows),
            dict(self._aggregates),
            dict(self._written),
            dict(self._versions),
            frozenset(self._captured),
        )
        if not transaction.nested:
            self.transaction_id = None

    def _join_running_transaction(self) -> None:
        """Note the transaction and the savepoints that began before this capture was made."""
        running = self.session.get_nested_transaction() or self.session.get_transaction()
        while running is not None:
            self.began(running)
            running = running.parent

    def about_to_flush(self) -> None:
        """Note which aggregates the flush may write, with their versions before it."""
        for instance in self.session.new:
            if isinstance(instance, AggregateRoot):
                self._written[id(instance)] = instance
        for instance in self.session.dirty:
            if isinstance(instance, AggregateRoot) and id(instance) not in self._versions:
                self._versions[id(instance)] = (instance, version_of(instance))

    def write(self, *, at_once: bool = False) -> None:
        """Write everything that waits, after the business rows; repeated, only what is new.

        Unless it is to be done at once, an event may be left to the owner of the transaction.
        """
        self.session.flush()
        aggregates = [found for found in self._aggregates.values() if self._uncaptured(found)]
        if not aggregates and not self._rows:
            self._check_early_write()
            return
        self._raise_versions(aggregates)
        connection = self.session.connection()
        rows = self._rows + [row for aggregate in aggregates for row in self._rows_of(aggregate)]
        rows.sort(key=lambda row: row.raise_number)
        if self.settings.tenancy.required:
            self._stay_in_tenant(connection, rows)
        if at_once or not self._is_postponed(connection, rows):
            written = write_events(connection, rows, schema=self.settings.schema)
            self.transaction_id = written or self.transaction_id
        self._captured.update(row.raise_number for row in rows)
        self._wakeups.add(wakeup_of(connection))
        self._rows.clear()
        if any(map(self._uncaptured, self._aggregates.values())):
            self.write(at_once=at_once)  # what hooks of the last flush raised

    @property
    def has_unwritten(self) -> bool:
        """Whether a commit would write events."""
        return bool(self._rows) or any(map(self._uncaptured, self._aggregates.values()))

    def write_early(self) -> None:
        """Write what waits before the commit, so that queries in the transaction see it."""
        self.write(at_once=True)
        self._wrote_early = True

    def _is_postponed(self, connection: Connection, rows: list[EventRow]) -> bool:
        take: Callable[[PostponedEvent], bool] | None = self.session.info.get(POSTPONE)
        if take is None:
            return False
        event = PostponedEvent.of(connection, rows, self.settings.schema)
        return event is not None and take(event)

    def _check_early_write(self) -> None:
        """Make sure that a transaction with rows written earlier was not aborted since.

        PostgreSQL answers the COMMIT of an aborted transaction with a rollback and no error.
        """
        if self._wrote_early:
            self._wrote_early = False
            self.session.execute(text("SELECT 1"))

    def _stay_in_tenant(self, connection: Connection, rows: list[EventRow]) -> None:
        """Refuse rows of another tenant than the transaction has told the database."""
        held: str | None = self.session.info.get(HELD_TENANT)
        if held is None:
            # The transaction began before this session was known to stay inside a tenant.
            held = self.tenant_id()
            enter_tenant(connection, held)
        for row in rows:
            if row.tenant_id != held:
                raise TenantMismatch("recording an event", row.tenant_id, held)

    def committed(self) -> None:
        """Note that the outermost transaction committed."""
        self._committed = True

    def rolled_back(self, transaction: SessionTransaction) -> None:
        """Note that the outermost transaction was rolled back, not merely closed."""
        if not transaction.nested:
            self.closed = False

    def released(self, transaction: SessionTransaction) -> None:
        """Let what a released savepoint did belong to the transaction around it."""
        self._marks.pop(transaction, None)

    def _return_to(self, mark: _Mark) -> None:
        for aggregate in self._aggregates.values():
            if is_mapped(aggregate) and not self._reverted(aggregate):
                continue  # it keeps its state, and is recorded when it is added again
            forget_events(aggregate, lambda raised: raised.number >= mark.raise_number)
        self._rows = list(mark.rows)
        self._aggregates = dict(mark.aggregates)
        self._written = dict(mark.written)
        self._versions = dict(mark.versions)
        self._captured = set(mark.captured)

    def ended(self, transaction: SessionTransaction) -> None:
        """Take leave of a transaction: recorded events are done with, others stay or go."""
        mark = self._marks.pop(transaction, None)
        if mark is None:
            return
        if transaction.nested:
            self._return_to(mark)  # rolled back or closed: a released one has no mark any more
            return
        for aggregate in self._aggregates.values():
            forget_events(aggregate, self._done_with(aggregate))
        self.closed = not self._committed
        if self._committed and self._captured:
            for wakeup in self._wakeups:
                wakeup.tell()
        self._reset()

    def _done_with(self, aggregate: AggregateRoot) -> Callable[[RaisedEvent], bool]:
        captured = self._captured
        if self._committed:
            return lambda raised: raised.number in captured
        reverted = self._reverted(aggregate)
        return lambda _: reverted

    def _reverted(self, aggregate: AggregateRoot) -> bool:
        # A rollback keeps a loaded object in the session and expires it; a close lets it go as it is.
        if not is_mapped(aggregate) or inspect(aggregate).key is None:
            return False
        return object_session(aggregate) is self.session

    def _reset(self) -> None:
        self._committed = self._wrote_early = False
        self._marks.clear()
        self._wakeups.clear()
        for notes in (self._rows, self._aggregates, self._written, self._versions, self._captured):
            notes.clear()

    def _uncaptured(self, aggregate: AggregateRoot) -> list[RaisedEvent]:
        return [r for r in raised_events(aggregate) if r.number not in self._captured]

    def _raise_versions(self, aggregates: list[AggregateRoot]) -> None:
        """Give aggregates that raised events a new version even when no column changed."""
        for aggregate in aggregates:
            if not is_mapped(aggregate):
                continue
            if object_session(aggregate) is not self.session:
                raise UnitOfWorkError(
                    f"{type(aggregate).__name__} raised events but is not in the session that "
                    "commits, so its changes would be lost; save it with "
                    "`await uow.repository(…).save(…)` or `session.add(…)` first"
                )
            self._refuse_other_database(aggregate)
            if not self._was_written(aggregate):
                raise_version(aggregate)
                self._written[id(aggregate)] = aggregate
        self.session.flush()

    def _refuse_other_database(self, aggregate: AggregateRoot) -> None:
        """Refuse an aggregate whose rows and events would be committed apart."""
        if self.session.get_bind(type(aggregate)).engine is not self.session.get_bind().engine:
            raise UnitOfWorkError(
                f"{type(aggregate).__name__} is stored in another database than the outbox, so "
                "that no transaction holds both; use a session of that database"
            )

    def _was_written(self, aggregate: AggregateRoot) -> bool:
        if id(aggregate) in self._written or is_deleted(aggregate):
            return True
        before = self._versions.get(id(aggregate))
        return before is not None and before[1] != version_of(aggregate)

    def _rows_of(self, aggregate: AggregateRoot) -> list[EventRow]:
        tenant_id = self.tenant_id()
        raiser = raiser_of(aggregate)
        waiting = self._uncaptured(aggregate)
        already = len(raised_events(aggregate)) - len(waiting)
        return [
            row_of_raised(raised, raiser, number, self.settings, tenant_id)
            for number, raised in enumerate(waiting, start=already + 1)
        ]

    def tenant_id(self) -> str:
        """Return the tenant that this session works for."""
        named: str = self.session.info.get(TENANT, DEFAULT_TENANT)
        return self.settings.tenancy.resolve(named, "recording an event")


def capture_of(session: Session) -> SessionCapture | None:
    """Return a session's capture, made on first use when its sessionmaker collects events."""
    found: SessionCapture | None = session.info.get(_CAPTURE)
    if found is None and SETTINGS in session.info:
        return make_capture(session, session.info[SETTINGS])
    return found


def make_capture(session: Session, settings: CaptureSettings) -> SessionCapture:
    """Give a session a capture, or return the one it has."""
    found: SessionCapture | None = session.info.get(_CAPTURE)
    if found is None:
        found = session.info[_CAPTURE] = SessionCapture(session, settings)
        for instance in (*session.new, *session.identity_map.values()):
            if isinstance(instance, AggregateRoot):
                found.watch(instance)
    return found
