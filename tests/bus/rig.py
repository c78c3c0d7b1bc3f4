"""What only our own tests need of a rig; the rest is `pillarbox.testing`."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from pillarbox.bus.message_bus import MessageBus
from pillarbox.servers.ports import LOOPBACK, free_ports
from pillarbox.testing import BusRig, Stored, ids, kinds, message, new_topic
from pillarbox.testing.rig import LIMIT
from tests.support.faultproxy import CLIENT, SERVER, AfterBytes, Cut, Drop, FaultProxy, Rule

__all__ = ["LIMIT", "ProxyLine", "Rig", "Stored", "ids", "kinds", "message", "new_topic", "nobody"]


class Rig(BusRig, Protocol):
    """A rig whose buses may also go to the broker by another address, through a proxy, say."""

    def bus(self, *, limit: timedelta = LIMIT, address: str | None = None) -> MessageBus: ...


def nobody() -> str:
    """Return a host and port where nothing listens."""
    return f"{LOOPBACK}:{free_ports(['none'])['none']}"


@dataclass(frozen=True, slots=True)
class ProxyLine:
    """A line through a proxy."""

    proxy: FaultProxy

    def lose_answers(self) -> None:
        self.proxy.now(Drop(CLIENT))

    def cut_after(self, count: int) -> None:
        self.proxy.plan(Rule(SERVER, AfterBytes(count), Cut()))

    def mend(self) -> None:
        self.proxy.thaw()
