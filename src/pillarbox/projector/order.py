"""Notice a broken order: an aggregate's event that is sent with a lower version than one before it."""

from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

from pillarbox.projector.store import Lane, OutboxEvent

_REMEMBERED: Final = 20_000
# So many are forgotten together: a dictionary walks past what was deleted from it to find its first.
_FORGOTTEN: Final = 2_000


class OrderWatch:
    """Remember the last version of the aggregates that came by lately.

    The writers make the order (decision 0003); this only tells when they did not, as when rows are
    written past the library. Each event is judged once, when it is first sent.
    """

    def __init__(self) -> None:
        # Aggregates may share a key, and each is judged by itself; so it is in each of its keys.
        self._last: dict[tuple[Lane, str | None, str | None], tuple[int, int]] = {}
        self._judged: dict[int, None] = {}

    def forget(self) -> None:
        """Begin anew: events may come again that were seen before."""
        self._last.clear()
        self._judged.clear()

    def broken(self, events: Iterable[OutboxEvent]) -> list[OutboxEvent]:
        """Return the events that are sent after their place; what was to be late is not judged."""
        found = []
        last, judged = self._last, self._judged
        for event in events:
            envelope = event.envelope
            version = envelope.aggregate_version
            if version is None or event.blocker or event.attempts or event.scheduled:
                continue
            if event.seq in judged:
                continue  # it goes again, after a failure
            judged[event.seq] = None
            author = event.lane, envelope.aggregate_type, envelope.aggregate_id
            place = version, envelope.event_number or 0
            before = last.get(author)
            if before is not None and place < before:
                found.append(event)
            else:
                last[author] = place
        _shorten(last)
        _shorten(judged)
        return found


def _shorten(remembered: dict[Any, Any]) -> None:
    if len(remembered) > _REMEMBERED:
        for oldest in list(islice(remembered, len(remembered) - _REMEMBERED + _FORGOTTEN)):
            del remembered[oldest]
