"""Where the projector tells what it does: metrics, tests and fault drills listen here."""

from collections.abc import Sequence
from datetime import timedelta

from pillarbox.bus.outcome import PublishOutcome


class Observer:
    """Hear of each step; derive and override what matters. The methods of this class do nothing.

    They run inside the projector's loop: they must be quick and must not raise. The order for one
    batch is claiming, claimed, sending, answered, settling, settled.
    """

    def claiming(self) -> None:
        """A claim is about to be asked for."""

    def claimed(self, events: int, took: timedelta) -> None:
        """A claim is committed; with 0 events there was nothing to claim."""

    def sending(self, topics: Sequence[str]) -> None:
        """Messages are handed to the bus: the topic of each."""

    def answered(
        self, topics: Sequence[str], outcomes: Sequence[PublishOutcome], took: timedelta
    ) -> None:
        """The bus has answered for these messages."""

    def delivered(self, tenant_id: str, latency: timedelta) -> None:
        """The oldest event of a tenant in this batch was acknowledged, this long after its commit."""

    def settling(self, events: int) -> None:
        """Outcomes are about to be written."""

    def settled(self, *, sent: int, failed: int, dead: int, took: timedelta) -> None:
        """Outcomes are committed."""

    def renewing(self) -> None:
        """Leases are about to be renewed."""

    def owns(self, shards: int) -> None:
        """The number of shards owned after a renewal."""

    def fenced(self, events: int) -> None:
        """Events were dropped from hand because their lease was lost."""

    def order_broken(self, tenant_id: str, key: str) -> None:
        """An event came with a lower aggregate version than one that was sent before it."""

    def poll_failed(self, error: Exception) -> None:
        """The database did not answer; the projector waits and goes on."""
