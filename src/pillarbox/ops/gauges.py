"""Gauges that are read from the database, in the form of the projector's metrics."""

from collections.abc import Iterator, Mapping

from pillarbox.measures import MOST_TENANTS, OTHER, Sample
from pillarbox.ops.state import State
from pillarbox.ops.views import Overview


async def read_gauges(state: State, *, tenants: int = MOST_TENANTS) -> tuple[Sample, ...]:
    """Read the backlog, what failed, what is DEAD, and ages; for each scrape, not for each batch.

    Counts stop at a cap of 100,000. None is 0 while a row waits.
    """
    return tuple(gauges_of(await state.overview(tenants=tenants), tenants))


def gauges_of(overview: Overview, tenants: int) -> Iterator[Sample]:
    """Return the values of an overview under their names."""
    for names, counted in (
        (("outbox_backlog", "pillarbox_outbox_pending_events"), overview.backlog),
        (("outbox_failed", "pillarbox_outbox_failed_events"), overview.failed),
        (("outbox_dead", "pillarbox_outbox_dead_events"), overview.dead),
    ):
        for name in names:
            yield Sample(name, "gauge", counted.at_least)
    for tenant_id, events in busiest(_waiting(overview), tenants).items():
        yield Sample("outbox_new_total", "gauge", events, (("tenant", tenant_id),))
    for each in overview.oldest:
        yield Sample(
            "pillarbox_outbox_oldest_pending_age_seconds",
            "gauge",
            max(each.age.total_seconds(), 0.0),
            (("tenant", each.tenant_id),),
        )


def _waiting(overview: Overview) -> Mapping[str, int]:
    """Count by tenant; one that a capped count did not come to has at least one event."""
    if overview.backlog.exact:
        return overview.by_tenant
    return {each.tenant_id: 1 for each in overview.oldest} | dict(overview.by_tenant)


def busiest(by_tenant: Mapping[str, int], tenants: int) -> dict[str, int]:
    """Keep the tenants with the most events, and add up the others as `_other`."""
    ordered = sorted(by_tenant.items(), key=lambda item: (-item[1], item[0]))
    kept = dict(ordered[:tenants])
    rest = sum(events for _, events in ordered[tenants:])
    return kept | {OTHER: rest} if rest else kept
