"""The fold of events into rows, as pure functions: what a read model promises is decided here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from pillarbox.event.envelope import MessageEnvelope
from pillarbox.readmodel.changes import Change, Delete, Increment, Update, Upsert

Row = dict[str, Any]
NO_DEFAULTS: Final[Mapping[str, Any]] = MappingProxyType({})


class Mark(NamedTuple):
    """How far an aggregate is: its version, and the event's number within it."""

    version: int
    number: int


class Author(NamedTuple):
    """The aggregate whose versions guard the row that has its id."""

    aggregate_type: str
    aggregate_id: str


def author_of(envelope: MessageEnvelope, change: Change) -> Author | None:
    """Return whose versions guard this change; None if the event id alone tells it from others.

    A row that has another id than the aggregate is fed by many: their versions do not compare.
    """
    if envelope.aggregate_version is None or envelope.aggregate_id != str(change.row_id):
        return None
    return Author(envelope.aggregate_type or "", envelope.aggregate_id)


def mark_of(envelope: MessageEnvelope) -> Mark:
    """Return how far the aggregate was with this event."""
    return Mark(envelope.aggregate_version or 0, envelope.event_number or 0)


@dataclass(slots=True)
class Page:
    """Rows of one tenant in memory, with the marks of their authors, and which of them changed."""

    rows: dict[str, Row | None] = field(default_factory=dict)
    marks: dict[Author, Mark] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    """Rows that were deleted, also those that came back: nothing of the old row may stay."""
    marked: set[Author] = field(default_factory=set)
    defaults: Row = field(default_factory=dict)
    """What columns of a new row begin with."""

    def apply(self, change: Change, envelope: MessageEnvelope, id_column: str) -> None:
        """Let one change take effect, if nothing newer has; its row must have been read."""
        author, key = author_of(envelope, change), str(change.row_id)
        row = self.rows.get(key)
        if author is not None and _is_stale(change, row, mark_of(envelope), self.marks.get(author)):
            return
        changed = changed_row(change, row, {**self.defaults, id_column: change.row_id})
        if changed is not row:
            self.rows[key] = changed
            self.written.add(key)
            if changed is None:
                self.deleted.add(key)
        elif not isinstance(change, Delete):  # what deletes nothing still shuts out older events
            return
        if author is not None:
            self.marks[author] = max(self.marks.get(author, Mark(-1, -1)), mark_of(envelope))
            self.marked.add(author)


def changed_row(change: Change, row: Row | None, new: Row) -> Row | None:
    """Return a row after a change; the row itself if the change does nothing.

    A row that is missing begins as `new`, and with an increment's own amounts.
    """
    match change:
        case Upsert():
            return {**(row or new), **change.values}
        case Update():
            return row if row is None else {**row, **change.values}
        case Delete():
            return None
        case Increment():
            return {**(row or new), **change.added_to(row or {})}
        case _:
            raise TypeError(f"{type(change).__name__} is no change")


def _is_stale(change: Change, row: Row | None, mark: Mark, newest: Mark | None) -> bool:
    """Tell whether newer state stands against a change.

    Several changes of one event have one mark: the first of them must not shut out the others.
    An increment is told from others by its event id; only a deleted row is not brought back.
    """
    if newest is None:
        return False
    if isinstance(change, Increment):
        return row is None and mark < newest
    return mark < newest


def fold(
    events: Mapping[str, tuple[MessageEnvelope, tuple[Change, ...]]],
    id_column: str,
    defaults: Mapping[str, Any] = NO_DEFAULTS,
) -> dict[tuple[str, str], Row]:
    """Return the rows that events come to, from nothing: what every table is compared with.

    `defaults` are the model's own, with which its new rows begin.
    """
    pages: dict[str, Page] = {}
    for envelope, changes in events.values():
        page = pages.setdefault(envelope.tenant_id, Page(defaults=dict(defaults)))
        for change in changes:
            page.apply(change, envelope, id_column)
    return {
        (tenant_id, key): row
        for tenant_id, page in pages.items()
        for key, row in page.rows.items()
        if row is not None
    }
