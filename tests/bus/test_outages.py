"""Brokers that die or freeze, each bus on a server of its own."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

import pytest

from pillarbox.bus.message_bus import MessageBus
from pillarbox.servers import Server
from pillarbox.testing import BusOutageContract, BusRig, Stored
from tests.bus.rig import LIMIT
from tests.bus.rigs import rig_of_own

pytestmark = pytest.mark.faults


@dataclass(frozen=True, slots=True)
class OwnRig:
    """A rig whose server may be killed."""

    server: Server
    shared: BusRig

    @property
    def name(self) -> str:
        return self.shared.name

    def bus(self, *, limit: timedelta = LIMIT) -> MessageBus:
        return self.shared.bus(limit=limit)

    async def read(self, topic: str) -> list[Stored]:
        return await self.shared.read(topic)

    async def kill(self) -> None:
        await asyncio.to_thread(self.server.kill)

    async def restart(self) -> None:
        await asyncio.to_thread(self.server.restart)

    async def freeze(self) -> None:
        self.server.freeze()

    async def thaw(self) -> None:
        self.server.thaw()


class TestEveryBus(BusOutageContract):
    """Each bus in turn."""

    @pytest.fixture
    def rig(self, own_server: Server) -> BusRig:
        return OwnRig(own_server, rig_of_own(own_server))
