"""Metrics: the names that users know, bounded labels, and little cost."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pillarbox.bus.outcome import ACCEPTED, PublishOutcome, Refused, Unavailable, Unknown
from pillarbox.measures import BOUNDS, Distribution, Sample
from pillarbox.ops.gauges import busiest, gauges_of, read_gauges
from pillarbox.ops.state import State
from pillarbox.ops.views import Counted, OldestPending, Overview
from pillarbox.projector.metrics import Metrics
from tests.ops.rows import Rows
from tests.support.database import Database, on

SECOND = timedelta(seconds=1)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class StoppedClock:
    def now(self) -> datetime:
        return NOW


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(clock=StoppedClock())


def values(samples: Iterable[Sample]) -> dict[str, Any]:
    """Return samples as an exporter would write them."""
    return {
        sample.name + "".join(f"{{{name}={value}}}" for name, value in sample.labels): sample.value
        for sample in samples
    }


def distribution(metrics: Metrics, name: str) -> Distribution:
    found = values(metrics.snapshot())[name]
    assert isinstance(found, Distribution)
    return found


def test_a_batch_is_counted_at_every_step(metrics: Metrics) -> None:
    metrics.claimed(3, SECOND)
    metrics.answered(["orders", "orders", "bills"], [ACCEPTED] * 3, 2 * SECOND)
    metrics.delivered("acme", 5 * SECOND)
    metrics.settled(sent=3, failed=0, dead=0, took=SECOND)

    found = values(metrics.snapshot())
    assert found["pillarbox_projector_claimed_events_total"] == 3
    assert found["pillarbox_projector_published_events_total{topic=orders}{outcome=accepted}"] == 2
    assert found["pillarbox_projector_published_events_total{topic=bills}{outcome=accepted}"] == 1
    assert found["pillarbox_projector_settled_events_total{status=sent}"] == 3
    assert found["pillarbox_projector_last_cycle_timestamp_seconds"] == NOW.timestamp()
    assert found["pillarbox_projector_publish_duration_seconds"].sum == 2
    assert found["pillarbox_projector_delivery_latency_seconds"].sum == 5
    assert found["outbox_publish_latency{tenant=acme}"].count == 1
    assert found["projector_batch_duration_seconds"].sum == 4
    assert found["pillarbox_projector_cycle_duration_seconds"].sum == 4


def test_a_turn_that_finds_nothing_is_a_cycle_and_no_batch(metrics: Metrics) -> None:
    metrics.claimed(0, SECOND)

    assert distribution(metrics, "pillarbox_projector_cycle_duration_seconds").count == 1
    assert distribution(metrics, "projector_batch_duration_seconds").count == 0


def test_failures_are_counted_by_class(metrics: Metrics) -> None:
    outcomes: list[PublishOutcome] = [
        Refused("size", "too large"),
        Refused("size", "somebody is too large", certain=False),
        Unavailable("down", "nobody answers"),
        Unknown("timeout", "no answer"),
    ]
    metrics.answered(["orders"] * 4, outcomes, SECOND)
    metrics.settled(sent=0, failed=1, dead=2, took=SECOND)

    found = values(metrics.snapshot())
    by = "pillarbox_projector_published_events_total{topic=orders}"
    assert found[f"{by}{{outcome=refused}}"] == 2
    assert found[f"{by}{{outcome=unavailable}}"] == 1
    assert found[f"{by}{{outcome=unknown}}"] == 1
    # Sent again: the doubtful refusal, the unknown one, and the FAILED one when it is due.
    assert found["event_publish_retry_total"] == 3
    assert found["outbox_err_total"] == 3


def test_troubles_of_the_projector_itself_are_counted(metrics: Metrics) -> None:
    metrics.owns(16)
    metrics.fenced(7)
    metrics.order_broken("acme", "order-1")
    metrics.poll_failed(OSError("gone"))

    found = values(metrics.snapshot())
    assert found["pillarbox_projector_shards"] == 16
    assert found["pillarbox_projector_fenced_events_total"] == 7
    assert found["pillarbox_projector_order_broken_total"] == 1
    assert found["pillarbox_projector_poll_errors_total"] == 1


def test_a_histogram_counts_what_lies_at_or_below_each_bound(metrics: Metrics) -> None:
    for seconds in (0.0, 0.001, 0.002, 4000.0, -1.0):
        metrics.delivered("acme", timedelta(seconds=seconds))

    found = distribution(metrics, "pillarbox_projector_delivery_latency_seconds")
    assert [bound for bound, _ in found.buckets] == list(BOUNDS)
    assert found.buckets[0] == (0.001, 3)
    assert found.buckets[-1] == (3600.0, 4)
    assert found.count == 5
    assert found.sum == pytest.approx(4000.003)


def test_with_10000_tenants_the_labels_stay_bounded(metrics: Metrics) -> None:
    for number in range(10_000):
        metrics.delivered(f"tenant-{number}", SECOND)

    latencies = [s for s in metrics.snapshot() if s.name == "outbox_publish_latency"]
    assert len(latencies) == 101
    assert values(latencies)["outbox_publish_latency{tenant=_other}"].count == 9_900


def test_with_many_topics_the_labels_stay_bounded(metrics: Metrics) -> None:
    topics = [f"topic-{number}" for number in range(1000)]

    metrics.answered(topics, [ACCEPTED] * 1000, SECOND)

    found = values(metrics.snapshot())
    assert (
        found["pillarbox_projector_published_events_total{topic=_other}{outcome=accepted}"] == 800
    )


def test_the_names_of_a_quiet_projector_are_there_from_the_start(metrics: Metrics) -> None:
    assert {sample.name for sample in metrics.snapshot()} >= {
        "event_publish_retry_total",
        "outbox_err_total",
        "pillarbox_projector_claimed_events_total",
        "pillarbox_projector_cycle_duration_seconds",
        "pillarbox_projector_last_cycle_timestamp_seconds",
        "pillarbox_projector_shards",
        "projector_batch_duration_seconds",
    }


@on("postgres18+asyncpg", "sqlite+aiosqlite")
async def test_gauges_are_read_from_the_database(database: Database, rows: Rows) -> None:
    await rows.event(1, "NEW", tenant_id="acme", set_aside="key")
    await rows.event(2, "FAILED", tenant_id="acme")
    await rows.event(3, "DEAD")

    found = values(await read_gauges(State(database.engine)))

    ages = {name: found.pop(name) for name in list(found) if "age" in name}
    assert found == {
        "outbox_backlog": 1,
        "pillarbox_outbox_pending_events": 1,
        "outbox_failed": 1,
        "pillarbox_outbox_failed_events": 1,
        "outbox_dead": 1,
        "pillarbox_outbox_dead_events": 1,
        "outbox_new_total{tenant=acme}": 1,
    }
    assert list(ages) == ["pillarbox_outbox_oldest_pending_age_seconds{tenant=acme}"]
    assert 0 <= min(ages.values()) < 600


def test_a_tenant_beyond_the_cap_of_the_count_is_not_0() -> None:
    overview = Overview(
        backlog=Counted(100, exact=False),
        failed=Counted(0),
        dead=Counted(0),
        by_tenant={"loud": 100},
        oldest=[OldestPending("quiet", NOW, SECOND)],
    )

    found = values(gauges_of(overview, 10))

    assert found["outbox_new_total{tenant=quiet}"] == 1
    assert found["outbox_new_total{tenant=loud}"] == 100


def test_the_busiest_tenants_keep_their_names() -> None:
    assert busiest({"a": 1, "b": 5, "c": 3, "d": 2}, 2) == {"b": 5, "c": 3, "_other": 3}
    assert busiest({"a": 1}, 2) == {"a": 1}
