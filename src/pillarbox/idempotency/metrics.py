"""Counters of commands, kept in the process; an exporter turns them into text."""

from collections import Counter
from typing import get_args

from pillarbox.idempotency.observer import Observer, Outcome
from pillarbox.measures import Sample


class IdempotencyMetrics(Observer):
    """Hear what becomes of each command, and count.

        metrics = IdempotencyMetrics()
        route = box.idempotent_route(principal=…, observer=metrics)
        for sample in metrics.snapshot(): ...

    Read it from the event loop of the application.
    """

    def __init__(self) -> None:
        self._ended: Counter[Outcome] = Counter()
        self._forgotten = self._not_forgotten = 0

    def ended(self, outcome: Outcome) -> None:
        """Count a request."""
        self._ended[outcome] += 1

    def forgotten(self, keys: int) -> None:
        """Count expired keys."""
        self._forgotten += keys

    def not_forgotten(self, error: Exception) -> None:
        """Count a clean-up that failed."""
        del error
        self._not_forgotten += 1

    def snapshot(self) -> tuple[Sample, ...]:
        """Return every value as it is now; names stand together."""
        name = "pillarbox_idempotency_requests_total"
        requests = (
            Sample(name, "counter", self._ended[outcome], (("outcome", outcome),))
            for outcome in get_args(Outcome)
        )
        forgotten = Sample("pillarbox_idempotency_expired_keys_total", "counter", self._forgotten)
        failed = "pillarbox_idempotency_cleanup_failures_total"
        return (*requests, forgotten, Sample(failed, "counter", self._not_forgotten))
