"""The memory bus, read from itself."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from pillarbox.bus.handover import DISCONNECTED
from pillarbox.bus.memory import MemoryMessageBus
from pillarbox.bus.message_bus import Capabilities, MessageBus
from pillarbox.bus.outcome import Refused, Unavailable, Unknown
from pillarbox.event.cloudevents import binary_headers
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.event.rules import MEMORY
from pillarbox.testing import Binding, Line
from tests.bus.rig import LIMIT, Stored

_REFUSED = Refused("too-odd", "in this test")
_LOST = Unknown("ack-lost", "in this test")


@dataclass(slots=True)
class MemoryRig:
    name: str = "memory"
    binding: Binding = "kafka"
    made: list[MemoryMessageBus] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)

    def bus(self, *, limit: timedelta = LIMIT, address: str | None = None) -> MessageBus:
        del address
        return self._bus(limit)

    async def read(self, topic: str) -> list[Stored]:
        headers = binary_headers("ce_")
        return [
            Stored(message.key, message.body(), dict(headers(message)))
            for bus in self.made
            for message in bus.messages
            if message.topic == topic
        ]

    async def refuse(self, message: MessageEnvelope) -> MessageEnvelope:
        self.refused.add(message.event_id)
        return message

    async def forbid(self, topic: str) -> None:
        forbidden = Unavailable("forbidden", "in this test", topic)
        for bus in self.made:
            bus.fail_with(lambda message: message.topic == topic, forbidden)

    async def permit(self, topic: str) -> None:
        del topic
        for bus in self.made:
            bus.recover()

    @asynccontextmanager
    async def behind_a_line(self, *, limit: timedelta) -> AsyncIterator[tuple[MessageBus, Line]]:
        bus = self._bus(limit)
        yield bus, _MemoryLine(bus)
        await bus.close()

    def _bus(self, limit: timedelta) -> MemoryMessageBus:
        bus = MemoryMessageBus(Capabilities(MEMORY, limit, pipelines_keys=True))
        bus.fail_with(lambda message: message.event_id in self.refused, _REFUSED)
        self.made.append(bus)
        return bus


@dataclass(frozen=True, slots=True)
class _MemoryLine:
    bus: MemoryMessageBus

    def lose_answers(self) -> None:
        self.bus.fail_with(lambda _: True, _LOST, store=True)

    def cut_after(self, count: int) -> None:
        del count
        self.bus.fail_with(lambda _: True, DISCONNECTED, times=1)

    def mend(self) -> None:
        self.bus.recover()
