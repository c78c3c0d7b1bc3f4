"""Counters of sagas, kept in the process; an exporter turns them into text."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from pillarbox.measures import Sample
from pillarbox.saga.machine import ENDED, State, Verdict
from pillarbox.saga.observer import SagaObserver

_OUTCOMES: Final = tuple((state, state.lower()) for state in ENDED)


class SagaMetrics(SagaObserver):
    """Hear of sagas, and count.

        metrics = SagaMetrics()
        box.saga(PlaceOrder, observer=metrics)
        for sample in metrics.snapshot(): ...

    How many run now is read from the database: see `read_saga_gauges` of `pillarbox.ops`.
    """

    def __init__(self) -> None:
        self._started: Counter[str] = Counter()
        self._stood: Counter[tuple[str, State]] = Counter()
        self._replies: Counter[tuple[str, str]] = Counter()
        self._rang: Counter[str] = Counter()
        self._troubled: Counter[str] = Counter()

    def started(self, saga: str) -> None:
        """Count a saga that began."""
        self._started[saga] += 1

    def stood(self, saga: str, state: State) -> None:
        """Count a saga that has ended, or stands STUCK."""
        self._stood[saga, state] += 1

    def replied(self, saga: str, verdict: Verdict) -> None:
        """Count a reply."""
        self._replies[saga, verdict] += 1

    def unknown(self, saga: str) -> None:
        """Count a reply to nobody."""
        self._replies[saga, "unknown"] += 1

    def rang(self, saga: str, number: int) -> None:
        """Count timers and wishes."""
        self._rang[saga] += number

    def troubled(self, saga: str, error: Exception) -> None:
        """Count a try that failed."""
        del error
        self._troubled[saga] += 1

    def snapshot(self) -> tuple[Sample, ...]:
        """Return every value as it is now; names stand together."""
        return tuple(self._samples())

    def _samples(self) -> Iterator[Sample]:
        sagas = sorted({*self._started, *self._rang, *self._troubled}
                       | {name for name, _ in (*self._stood, *self._replies)})  # fmt: skip
        for saga in sagas:
            yield _counter("pillarbox_saga_started_total", self._started[saga], saga)
        for saga in sagas:
            for state, outcome in _OUTCOMES:
                value = self._stood[saga, state]
                yield _counter("pillarbox_saga_finished_total", value, saga, outcome)
        for saga in sagas:
            yield _counter("pillarbox_saga_stuck_total", self._stood[saga, State.STUCK], saga)
        for saga in sagas:
            for verdict in (*Verdict, "unknown"):
                value = self._replies[saga, verdict]
                yield _counter("pillarbox_saga_replies_total", value, saga, verdict)
        for saga in sagas:
            yield _counter("pillarbox_saga_timers_total", self._rang[saga], saga)
        for saga in sagas:
            yield _counter("pillarbox_saga_errors_total", self._troubled[saga], saga)


def _counter(name: str, value: int, saga: str, outcome: str | None = None) -> Sample:
    labels = (("saga", saga),) if outcome is None else (("saga", saga), ("outcome", str(outcome)))
    return Sample(name, "counter", value, labels)
