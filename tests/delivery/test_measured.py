"""Metrics of a running projector: they say what happened, and no gauge is 0 while rows wait."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from pillarbox import MemoryMessageBus, MessageEnvelope
from pillarbox.bus.outcome import ACCEPTED, PublishOutcome, Refused
from pillarbox.ops.gauges import read_gauges
from pillarbox.ops.state import State
from pillarbox.projector.metrics import Metrics
from tests.delivery.shop import Shop
from tests.support.database import on

pytestmark = on("postgres18+psycopg")

TOO_LARGE = Refused("too-large", "1 MB")
WAITING = "SELECT count(*) FROM outbox WHERE status IN ('NEW', 'PUBLISHING')"
STATUSES = "SELECT count(*) FROM outbox WHERE status = :status"


class CountingBus(MemoryMessageBus):
    """Counts its own answers."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: Counter[tuple[str | None, bool]] = Counter()

    async def publish(
        self, batch: Sequence[MessageEnvelope], *, one_by_one: bool = False
    ) -> Sequence[PublishOutcome]:
        outcomes = await super().publish(batch, one_by_one=one_by_one)
        for envelope, outcome in zip(batch, outcomes, strict=True):
            self.answers[envelope.topic, outcome == ACCEPTED] += 1
        return outcomes


def counted(metrics: Metrics) -> dict[str, Any]:
    return {
        "".join([sample.name, *(f"{{{value}}}" for _, value in sample.labels)]): sample.value
        for sample in metrics.snapshot()
        if sample.kind == "counter"
    }


async def test_counters_equal_what_the_bus_and_the_rows_say(shop: Shop) -> None:
    bus, metrics = CountingBus(), Metrics()
    good = [*await shop.add(*"abcdefgh"), *await shop.add(*"abcd", topic="bills")]
    bad = await shop.add("x", "y", "z")
    bus.fail_with(set(bad), TOO_LARGE)

    shop.configured(max_retry_attempts=3)
    async with shop.projecting(message_bus=bus, observer=metrics):
        await shop.status(bad, "DEAD")
        await shop.sent([*good, *await shop.add("a")])

    found = counted(metrics)
    published = "pillarbox_projector_published_events_total"
    assert found[f"{published}{{orders}}{{accepted}}"] == bus.answers["orders", True] == 9
    assert found[f"{published}{{bills}}{{accepted}}"] == bus.answers["bills", True] == 4
    assert found[f"{published}{{orders}}{{refused}}"] == bus.answers["orders", False] == 9
    settled = "pillarbox_projector_settled_events_total"
    for status in ("sent", "dead"):
        rows = await shop.database.scalar(STATUSES, {"status": status.upper()})
        assert found[f"{settled}{{{status}}}"] == rows
    assert found[f"{settled}{{failed}}"] == found["event_publish_retry_total"] == 6
    assert found["outbox_err_total"] == 9
    assert found["pillarbox_projector_claimed_events_total"] == 13 + 9


@pytest.mark.parametrize("claim", ["insert", "row"])
async def test_the_backlog_is_never_0_while_a_row_waits(shop: Shop, claim: str) -> None:
    state = State(shop.database.engine)
    for number in range(20):
        await shop.add_together(*[f"key-{n}" for n in range(100)], topic=f"topic-{number % 3}")
    seen: list[tuple[Any, Any]] = []

    shop.configured(claim=claim, batch_size=50, batches_in_hand=1)
    async with shop.projecting():
        while not seen or seen[-1][1]:
            gauges = {sample.name: sample.value for sample in await read_gauges(state)}
            # Nothing is added: whoever waits now waited when the gauge was read.
            seen.append((gauges["outbox_backlog"], await shop.database.scalar(WAITING)))

    assert all(backlog >= waiting for backlog, waiting in seen), seen
    assert len({backlog for backlog, _ in seen}) > 2, "nothing was seen on the way"
