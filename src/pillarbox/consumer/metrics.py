"""Counters and histograms of a consumer, kept in the process; an exporter turns them into text."""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from pillarbox.consumer.observer import Observer
from pillarbox.consumer.verdict import Outcome
from pillarbox.measures import Capped, Histogram, Labels, Sample

MOST_TYPES: Final = 200


class ConsumerMetrics(Observer):
    """Hear of each step of a consumer, and count.

        metrics = ConsumerMetrics("payments")
        for sample in metrics.snapshot(): ...

    Read it from the consumer's own event loop.
    """

    def __init__(self, consumer: str, *, event_types: int = MOST_TYPES) -> None:
        self._consumer = consumer
        self._types = Capped(event_types)
        self._ended: Counter[Outcome] = Counter()
        self._tasks: Counter[str] = Counter()
        self._handlers: dict[str, Histogram] = {}
        self._lag: int | None = None
        self._revoked = self._away = self._forgotten = 0

    def ended(self, outcome: Outcome, messages: int) -> None:
        """Count what tries have come to."""
        self._ended[outcome] += messages

    def returned(self, outcome: Outcome) -> None:
        """Count what the try of a waiting message has come to."""
        self._ended[outcome] += 1

    def handled(self, event_type: str, took: timedelta) -> None:
        """Note how long a handler took."""
        label = self._types.label(event_type)
        self._handlers.setdefault(label, Histogram()).observe(took.total_seconds())

    def task_ended(self, name: str, *, done: bool) -> None:
        """Count a task."""
        del name
        self._tasks["done" if done else "failed"] += 1

    def forgotten(self, records: int) -> None:
        """Count old records that were removed."""
        self._forgotten += records

    def lagging(self, messages: int) -> None:
        """Note how many messages wait at the broker."""
        self._lag = messages

    def revoked(self, messages: int) -> None:
        """Count messages that went with their partitions."""
        self._revoked += messages

    def database_away(self, error: Exception) -> None:
        """Count a database that did not answer."""
        del error
        self._away += 1

    def snapshot(self) -> tuple[Sample, ...]:
        """Return every value as it is now; names stand together."""
        return (*self._counters(), *self._gauges(), *self._histograms())

    def _counters(self) -> Iterator[Sample]:
        outcomes: tuple[Outcome, ...] = (
            "new", "duplicate", "failed", "parked", "waiting", "dropped", "ignored",
        )  # fmt: skip
        for outcome in outcomes:
            name, value = "pillarbox_inbox_deliveries_total", self._ended[outcome]
            yield Sample(name, "counter", value, self._labels(("outcome", outcome)))
        for ending in ("done", "failed"):
            name, value = "pillarbox_consumer_tasks_total", self._tasks[ending]
            yield Sample(name, "counter", value, self._labels(("outcome", ending)))
        name = "pillarbox_consumer_revoked_messages_total"
        yield Sample(name, "counter", self._revoked, self._labels())
        name = "pillarbox_inbox_forgotten_records_total"
        yield Sample(name, "counter", self._forgotten, self._labels())
        name = "pillarbox_consumer_database_errors_total"
        yield Sample(name, "counter", self._away, self._labels())

    def _gauges(self) -> Iterator[Sample]:
        if self._lag is not None:
            yield Sample("pillarbox_consumer_lag_messages", "gauge", self._lag, self._labels())

    def _histograms(self) -> Iterator[Sample]:
        for event_type, histogram in sorted(self._handlers.items()):
            labels = self._labels(("event_type", event_type))
            name = "pillarbox_handler_duration_seconds"
            yield Sample(name, "histogram", histogram.value(), labels)

    def _labels(self, *more: tuple[str, str]) -> Labels:
        return (("consumer", self._consumer), *more)
