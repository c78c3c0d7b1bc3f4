"""One durable consumer of JetStream, as one member sees it: the pin, and what is in our hands."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from pillarbox.bus.subscription import Delivery


class Durable(NamedTuple):
    """A durable consumer: the partition that it stands for, and where it is."""

    topic: str
    subject: str
    stream: str
    name: str


class Arrival(NamedTuple):
    """A message as the server delivered it: its place in the stream, and which delivery this is."""

    delivery: Delivery
    sequence: int
    number: int
    reply: str
    pin: str | None


@dataclass(slots=True)
class Held:
    """A message that the server waits for: buffered, or in the consumer's hands."""

    reply: str
    number: int


class Pending(NamedTuple):
    """What the server said of a durable: deliveries so far, and messages not acknowledged yet."""

    delivered: int
    unacknowledged: int
    waiting: int


@dataclass(eq=False, slots=True)
class Lane:
    """Decide what may be handed on, in the order of the stream.

    The server delivers again in no particular order, and new messages before old ones that another
    member still has. So a lane that does not know what others have is *unsettled*: it collects, until
    every message that the server waits for is in our own hands.
    """

    durable: Durable
    batch: int
    ordered: bool = True
    pin: str | None = None
    settled: bool = False
    doubts: int = 0
    wanted: bool = True
    letting_go: bool = False
    asked: int = 0
    asked_at: float = 0.0
    refused: bool = False
    held: dict[int, Held] = field(default_factory=dict)
    _collected: list[Delivery] = field(default_factory=list)

    def came(self, arrival: Arrival) -> list[Delivery]:
        """Take a message; return what may be handed on now."""
        self.asked -= 1
        if arrival.pin is not None and arrival.pin != self.pin:
            self.pin = arrival.pin
            self.unsettle()
        known = self.held.get(arrival.sequence)
        if known is not None:
            known.reply, known.number = arrival.reply, arrival.number
            return []
        self.held[arrival.sequence] = Held(arrival.reply, arrival.number)
        if self.settled or not self.ordered:
            return [arrival.delivery]
        self._collected.append(arrival.delivery)
        return []

    def unsettle(self) -> None:
        """Trust nothing until the server has been asked: another member may have messages."""
        self.doubts += 1
        self.settled = not self.ordered

    def settle(self, said: Pending) -> list[Delivery]:
        """Compare with what the server said; return what may be handed on now.

        Only deliveries that it had made by then are counted: of later ones it could not speak.
        """
        ours = sum(1 for held in self.held.values() if held.number <= said.delivered)
        if said.unacknowledged > ours:
            return []
        self.settled = True
        ready, self._collected = sorted(self._collected, key=lambda found: found.token[1]), []
        return ready

    def finish(self, sequences: Iterable[int]) -> list[str]:
        """Forget messages that are done; return where to say so."""
        known = [self.held.pop(number) for number in sequences if number in self.held]
        return [held.reply for held in known]

    def may_repeat(self, sequence: int) -> bool:
        """Tell whether a message is still ours to deliver again."""
        return sequence in self.held and not self.letting_go

    def give_up(self) -> list[str]:
        """Forget everything; return where to say that it was not done."""
        replies = [held.reply for held in self.held.values()]
        self.held.clear()
        self._collected.clear()
        self.pin = None
        self.unsettle()
        return replies
