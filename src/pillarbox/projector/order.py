"""Notice a broken order: an aggregate's event that is sent with a lower version than one before it."""

from collections.abc import Iterable
from typing import Final

from pillarbox.projector.store import Lane, OutboxEvent

_REMEMBERED: Final = 20_000


class OrderWatch:
    """Remember the last version of the aggregates that came by lately.

    The writers make the order (decision 0003); this only tells when they did not, as when rows are
    written past the library.
    """

    def __init__(self) -> None:
        # Two kinds of aggregates may share a key; each is judged against its own kind only.
        self._last: dict[Lane, tuple[int, int, str | None, int]] = {}

    def forget(self) -> None:
        """Begin anew: events may come again that were seen before."""
        self._last.clear()

    def broken(self, events: Iterable[OutboxEvent]) -> list[OutboxEvent]:
        """Return the events that are sent after their place; one that is sent again is not judged."""
        found = []
        last = self._last
        for event in events:
            envelope = event.envelope
            version = envelope.aggregate_version
            if version is None or event.blocker or event.attempts:
                continue
            number, kind = envelope.event_number or 0, envelope.aggregate_type
            before = last.get(event.lane)
            if before is not None and event.seq <= before[3]:
                continue  # it goes again, after a failure, or came late
            if before is not None and before[2] == kind and (version, number) < before[:2]:
                found.append(event)
            else:
                last[event.lane] = version, number, kind, event.seq
        while len(last) > _REMEMBERED:
            del last[next(iter(last))]
        return found
