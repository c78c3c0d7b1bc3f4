"""Notice a broken order: an aggregate's event that comes with a lower version than one before it."""

from collections.abc import Iterable
from typing import Final

from pillarbox.projector.store import OutboxEvent

_REMEMBERED: Final = 20_000


class OrderWatch:
    """Remember the last version of the aggregates that came by lately.

    The writers make the order (decision 0003); this only tells when they did not, as when rows are
    written past the library.
    """

    def __init__(self) -> None:
        # Two aggregates of one id share an entry; each is judged against its own kind only.
        self._last: dict[str | None, tuple[int, int, str | None, str]] = {}

    def forget(self) -> None:
        """Begin anew: events may come again that were seen before."""
        self._last.clear()

    def broken(self, events: Iterable[OutboxEvent]) -> list[OutboxEvent]:
        """Return the events that come after their place; one that is tried again is not judged."""
        found = []
        last = self._last
        for event in events:
            envelope = event.envelope
            version = envelope.aggregate_version
            if version is None or event.blocker or event.attempts:
                continue
            where = envelope.aggregate_id
            now = (version, envelope.event_number or 0, envelope.aggregate_type, event.lane[0])
            before = last.get(where)
            if before is not None and now[:2] < before[:2] and now[2:] == before[2:]:
                found.append(event)
            else:
                last[where] = now
        while len(last) > _REMEMBERED:
            del last[next(iter(last))]
        return found
