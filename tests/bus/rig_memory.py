"""The memory bus, read from itself."""

from dataclasses import dataclass, field
from datetime import timedelta

from pillarbox.bus.memory import MemoryMessageBus
from pillarbox.bus.message_bus import MessageBus
from pillarbox.event.cloudevents import binary_headers
from tests.bus.rig import LIMIT, Stored


@dataclass(slots=True)
class MemoryRig:
    name: str = "memory"
    made: list[MemoryMessageBus] = field(default_factory=list)

    def bus(self, *, limit: timedelta = LIMIT, address: str | None = None) -> MessageBus:
        del limit, address
        self.made.append(MemoryMessageBus())
        return self.made[-1]

    async def read(self, topic: str) -> list[Stored]:
        headers = binary_headers("ce_")
        return [
            Stored(message.key, message.body(), dict(headers(message)))
            for bus in self.made
            for message in bus.messages
            if message.topic == topic
        ]
