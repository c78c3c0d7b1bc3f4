"""Counters and histograms of a projector, kept in the process; an exporter turns them into text.

Names with the prefix `pillarbox_` are the catalogue; those without are the names that users of the
outbox pattern know. Gauges that need the database are read by `pillarbox.ops.gauges`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final

from pillarbox.bus.outcome import Accepted, PublishOutcome, Refused, Unavailable, Unknown
from pillarbox.clock import SYSTEM_CLOCK, Clock
from pillarbox.event.ids import EPOCH
from pillarbox.measures import MOST_TENANTS, Capped, Histogram, Sample
from pillarbox.projector.observer import Observer

MOST_TOPICS: Final = 200

_OUTCOMES: Final[Mapping[type[PublishOutcome], str]] = {
    Accepted: "accepted",
    Refused: "refused",
    Unavailable: "unavailable",
    Unknown: "unknown",
}


class Metrics(Observer):
    """Hear of each step of a projector, and count.

        metrics = Metrics()
        for sample in metrics.snapshot(): ...

    Called for each batch, never for each event. Read it from the projector's own event loop.
    """

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK, tenants: int = MOST_TENANTS) -> None:
        self._clock = clock
        self._tenants = Capped(tenants)
        self._topics = Capped(MOST_TOPICS)
        self._claimed = 0
        self._published: Counter[tuple[str, str]] = Counter()
        self._retries = 0
        self._settled: Counter[str] = Counter()
        self._troubles: Counter[str] = Counter()
        self._shards = 0
        self._last_cycle = 0.0
        self._claim_took = self._publish_took = 0.0
        self._publish, self._batch, self._cycle = Histogram(), Histogram(), Histogram()
        self._latency = Histogram()
        self._latency_by_tenant: dict[str, Histogram] = {}

    def claimed(self, events: int, took: timedelta) -> None:
        """Count the claimed events; a turn that found nothing ends here."""
        self._claimed += events
        self._last_cycle = (self._clock.now() - EPOCH).total_seconds()
        if events:
            self._claim_took = took.total_seconds()
        else:
            self._cycle.observe(took.total_seconds())

    def answered(
        self, topics: Sequence[str], outcomes: Sequence[PublishOutcome], took: timedelta
    ) -> None:
        """Count the answers of the bus by topic and class."""
        for (topic, kind), events in _by_topic(topics, outcomes):
            self._published[self._topics.label(topic), _OUTCOMES[kind]] += events
            self._retries += events if kind is Unknown else 0
        self._retries += sum(map(_sent_again, outcomes)) if Refused in map(type, outcomes) else 0
        self._publish_took = took.total_seconds()
        self._publish.observe(self._publish_took)

    def delivered(self, tenant_id: str, latency: timedelta) -> None:
        """Note how long a tenant's oldest event of the batch took from commit to acknowledgement."""
        seconds = latency.total_seconds()
        self._latency.observe(seconds)
        label = self._tenants.label(tenant_id)
        self._latency_by_tenant.setdefault(label, Histogram()).observe(seconds)

    def settled(self, *, sent: int, failed: int, dead: int, took: timedelta) -> None:
        """Count what became of the events; a turn that found some ends here."""
        self._settled.update(sent=sent, failed=failed, dead=dead)
        self._retries += failed
        # Batches overlap, so the steps are added up rather than timed from end to end.
        seconds = self._claim_took + self._publish_took + took.total_seconds()
        self._batch.observe(seconds)
        self._cycle.observe(seconds)

    def owns(self, shards: int) -> None:
        """Note how many shards the projector owns."""
        self._shards = shards

    def fenced(self, events: int) -> None:
        """Count events that were dropped with a lost lease."""
        self._troubles["fenced_events"] += events

    def order_broken(self, tenant_id: str, key: str) -> None:
        """Count an event that came after a newer one of its key."""
        del tenant_id, key
        self._troubles["order_broken"] += 1

    def poll_failed(self, error: Exception) -> None:
        """Count a database that did not answer."""
        del error
        self._troubles["poll_errors"] += 1

    def snapshot(self) -> tuple[Sample, ...]:
        """Return every value as it is now; names stand together."""
        return (*self._counters(), *self._gauges(), *self._histograms())

    def _counters(self) -> Iterator[Sample]:
        prefix = "pillarbox_projector_"
        yield Sample(f"{prefix}claimed_events_total", "counter", self._claimed)
        for (topic, outcome), events in sorted(self._published.items()):
            by = (("topic", topic), ("outcome", outcome))
            yield Sample(f"{prefix}published_events_total", "counter", events, by)
        for status in ("sent", "failed", "dead"):
            events = self._settled[status]
            yield Sample(f"{prefix}settled_events_total", "counter", events, (("status", status),))
        for name in ("fenced_events", "order_broken", "poll_errors"):
            yield Sample(f"{prefix}{name}_total", "counter", self._troubles[name])
        yield Sample("event_publish_retry_total", "counter", self._retries)
        errors = self._settled["failed"] + self._settled["dead"]
        yield Sample("outbox_err_total", "counter", errors)

    def _gauges(self) -> Iterator[Sample]:
        yield Sample("pillarbox_projector_shards", "gauge", self._shards)
        name = "pillarbox_projector_last_cycle_timestamp_seconds"
        yield Sample(name, "gauge", self._last_cycle)

    def _histograms(self) -> Iterator[Sample]:
        for name, histogram in (
            ("pillarbox_projector_publish_duration_seconds", self._publish),
            ("pillarbox_projector_cycle_duration_seconds", self._cycle),
            ("projector_batch_duration_seconds", self._batch),
            ("pillarbox_projector_delivery_latency_seconds", self._latency),
        ):
            yield Sample(name, "histogram", histogram.value())
        for tenant_id, histogram in sorted(self._latency_by_tenant.items()):
            labels = (("tenant", tenant_id),)
            yield Sample("outbox_publish_latency", "histogram", histogram.value(), labels)


def _by_topic(
    topics: Sequence[str], outcomes: Sequence[PublishOutcome]
) -> Iterator[tuple[tuple[str, type[PublishOutcome]], int]]:
    """Count answers; when all are alike, as they nearly always are, topics alone."""
    kinds = set(map(type, outcomes))
    if len(kinds) == 1:
        kind = kinds.pop()
        for topic, events in Counter(topics).items():
            yield (topic, kind), events
    else:
        # Nothing here may raise: a bus with too few answers is left to the projector.
        yield from Counter(zip(topics, map(type, outcomes), strict=False)).items()


def _sent_again(outcome: PublishOutcome) -> bool:
    """Tell a refusal that was given to several messages together: each is sent again."""
    return isinstance(outcome, Refused) and not outcome.certain
