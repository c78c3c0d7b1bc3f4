"""Who is passed over: paused tenants and topics, and those over their rate."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from pillarbox.projector.store import Control, OutboxEvent

ANY: Final = "*"
# What is over its rate is claimed again after so many seconds' worth of it, not event by event.
_WORTH_A_CLAIM: Final = 0.1
# Of what is set aside without being sent so many are claimed at once, whatever the rate.
_MOST_IN_VAIN: Final = 64
# And only for so many seconds after that: when its key is let go, what comes back is to be sent.
_IN_VAIN_LATELY: Final = 1.0


@dataclass(slots=True)
class _Bucket:
    """Events that may still be sent; below zero nothing is, until time has refilled it."""

    rate: float
    tokens: float
    filled_at: float
    spent: bool = False
    in_vain: int = 0
    """How many may be claimed though fewer may go: what was claimed lately was all set aside."""
    in_vain_at: float = -math.inf

    def fill(self, now: float) -> None:
        """Add what time has brought; one task may ask with an earlier time than another has."""
        if now > self.filled_at:
            self.tokens = min(self.tokens + (now - self.filled_at) * self.rate, self.rate)
            self.filled_at = now

    def at_rate(self, rate: float, now: float) -> "_Bucket":
        """Return the bucket with another rate; what was overspent stays so."""
        self.fill(now)
        return _Bucket(rate, min(self.tokens, rate), now, self.spent)

    def spend(self) -> None:
        self.tokens -= 1
        self.spent |= self.tokens <= 0

    def shut(self, now: float) -> bool:
        """Tell whether nothing may go: once all is spent, until what may go is worth a claim."""
        self.fill(now)
        if self.tokens <= 0:
            self.spent = True
        elif self.tokens >= self.rate * _WORTH_A_CLAIM:
            self.spent = False
        return self.spent

    def room(self, now: float) -> int:
        """Return how many events may go now."""
        return 0 if self.shut(now) else math.ceil(self.tokens)

    def quota(self, now: float) -> int:
        """Return how many events may be claimed now."""
        room = self.room(now)
        return room and max(room, self._in_vain_lately(now))

    def learn(self, now: float, *, sent: bool) -> None:
        """Note whether anything that was claimed is sent."""
        more = min(max(self._in_vain_lately(now), 1) * 2, _MOST_IN_VAIN)
        self.in_vain, self.in_vain_at = 0 if sent else more, now

    def _in_vain_lately(self, now: float) -> int:
        return self.in_vain if now < self.in_vain_at + _IN_VAIN_LATELY else 0


@dataclass(slots=True)
class Throttle:
    """Apply what operators asked for; rates are this projector's share of them."""

    share: float = 1.0
    _controls: tuple[Control, ...] = ()
    _buckets: dict[tuple[str, str], _Bucket] = field(default_factory=dict)

    def apply(self, controls: Sequence[Control], now: float) -> None:
        """Take over the controls; a bucket keeps its tokens, also when its rate changes."""
        self._controls = tuple(controls)
        buckets = {}
        for control in controls:
            if control.events_per_second is not None:
                where = control.tenant_id, control.topic
                rate = control.events_per_second * self.share
                known = self._buckets.get(where, _Bucket(rate, rate, now))
                buckets[where] = known if known.rate == rate else known.at_rate(rate, now)
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

    def quotas(self, now: float) -> dict[str, int]:
        """Return how many events of each tenant that has a rate may be claimed."""
        return {
            tenant_id: bucket.quota(now)
            for (tenant_id, topic), bucket in self._buckets.items()
            if topic == ANY and tenant_id != ANY
        }

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
                        bucket.spend()

    def learn(
        self, claimed: Iterable[OutboxEvent], going: Iterable[OutboxEvent], now: float
    ) -> None:
        """Claim more of a tenant whose events are all set aside; what is not sent costs no rate.

        A claim each for a hundred thousand of them would be a hundred thousand commits.
        """
        if not self._buckets:
            return
        sent = {event.lane[0] for event in going}
        for tenant_id in {event.lane[0] for event in claimed}:
            if bucket := self._buckets.get((tenant_id, ANY)):
                bucket.learn(now, sent=tenant_id in sent)

    def room(self, topic: str, now: float) -> int:
        """Return how many events of a topic may be let go of now; -1 for any number."""
        bucket = self._buckets.get((ANY, topic))
        return -1 if bucket is None else bucket.room(now)

    def rooms_apart(self, topic: str, now: float) -> dict[str, int]:
        """Return the same for each tenant that is paused or limited there by itself."""
        return {
            control.tenant_id: self._room_of(control, now)
            for control in self._controls
            if control.topic == topic and control.tenant_id != ANY
        }

    def _room_of(self, control: Control, now: float) -> int:
        bucket = self._buckets.get((control.tenant_id, control.topic))
        return 0 if control.paused or bucket is None else bucket.room(now)

    def _shut(self, control: Control, now: float) -> bool:
        bucket = self._buckets.get((control.tenant_id, control.topic))
        return control.paused or (bucket is not None and bucket.shut(now))
