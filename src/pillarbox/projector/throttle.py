"""Who is passed over: paused tenants and topics, and those over their rate."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from pillarbox.projector.store import Control, OutboxEvent

ANY: Final = "*"


@dataclass(slots=True)
class _Bucket:
    """Events that may still be sent; below zero nothing is, until time has refilled it."""

    rate: float
    tokens: float
    filled_at: float

    def fill(self, now: float) -> None:
        self.tokens = min(self.tokens + (now - self.filled_at) * self.rate, self.rate)
        self.filled_at = now


@dataclass(slots=True)
class Throttle:
    """Apply what operators asked for; rates are this projector's share of them."""

    share: float = 1.0
    _controls: tuple[Control, ...] = ()
    _buckets: dict[tuple[str, str], _Bucket] = field(default_factory=dict)

    def apply(self, controls: Sequence[Control], now: float) -> None:
        """Take over the controls; a bucket whose rate is the same keeps its tokens."""
        self._controls = tuple(controls)
        buckets = {}
        for control in controls:
            if control.events_per_second is not None:
                where = control.tenant_id, control.topic
                rate = control.events_per_second * self.share
                known = self._buckets.get(where)
                buckets[where] = known if known and known.rate == rate else _Bucket(rate, rate, now)
        self._buckets = buckets

    @property
    def idle(self) -> bool:
        """Whether nothing is asked for."""
        return not self._controls

    def passed_over(self, now: float) -> frozenset[str]:
        """Name the tenants that are not claimed for."""
        return frozenset(
            control.tenant_id
            for control in self._controls
            if control.topic == ANY and control.tenant_id != ANY and self._shut(control, now)
        )

    def everything(self, now: float) -> bool:
        """Tell whether all tenants and topics are paused."""
        return any(
            control.topic == ANY and control.tenant_id == ANY and self._shut(control, now)
            for control in self._controls
        )

    @property
    def stopped(self) -> bool:
        """Whether an operator has paused all tenants and topics."""
        return any(
            control.paused and control.topic == ANY and control.tenant_id == ANY
            for control in self._controls
        )

    def shut_topics(self, now: float) -> frozenset[tuple[str, str]]:
        """Name the pairs (tenant or `*`, topic) whose events are set aside."""
        return frozenset(
            (control.tenant_id, control.topic)
            for control in self._controls
            if control.topic != ANY and self._shut(control, now)
        )

    def spend(self, events: Iterable[OutboxEvent]) -> None:
        """Count events against the rates."""
        if self._buckets:
            for event in events:
                tenant_id = event.lane[0]
                for where in (
                    (tenant_id, event.topic),
                    (ANY, event.topic),
                    (tenant_id, ANY),
                    (ANY, ANY),
                ):
                    if bucket := self._buckets.get(where):
                        bucket.tokens -= 1

    def room(self, topic: str, now: float) -> int:
        """Return how many events of a topic may be let go of now; -1 for any number."""
        rooms = []
        for (tenant_id, of_topic), bucket in self._buckets.items():
            if of_topic == topic:
                bucket.fill(now)
                if (
                    tenant_id == ANY or bucket.tokens > 0
                ):  # a tenant over its rate holds up no other
                    rooms.append(max(0, math.ceil(bucket.tokens)))
        return min(rooms, default=-1)

    def _shut(self, control: Control, now: float) -> bool:
        bucket = self._buckets.get((control.tenant_id, control.topic))
        if bucket is not None:
            bucket.fill(now)
        return control.paused or (bucket is not None and bucket.tokens <= 0)
