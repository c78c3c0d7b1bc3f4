"""A lane: messages in hand, in the order of their keys, with one batch of them at work at a time."""

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from pillarbox.bus.subscription import Delivery
from pillarbox.consumer.identity import message_id_of
from pillarbox.consumer.routes import Prepared
from pillarbox.consumer.verdict import End
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.event.incoming import Unreadable
from pillarbox.tenancy import DEFAULT_TENANT

Line = tuple[str, str | None, str]
"""Messages that keep an order among themselves: tenant and key, or a message that has no key."""


@dataclass(slots=True, eq=False)
class InHand:
    """A delivery, what it says, and what became of it so far."""

    delivery: Delivery
    content: Prepared | Unreadable
    line: Line
    message_id: str
    arrival: int = 0
    """Its number among all that came."""
    came_at: datetime | None = None
    attempts: int = 0
    """How often it was tried and failed, here or in a process before this one."""
    held_since: float | None = None
    last: End | None = None
    """What its last try came to, while it is held."""
    alone: bool = False
    """Whether it must have the process for itself, because one died over it."""
    noted: bool = False
    """Whether the table of attempts has a row of it."""
    marked: bool = False
    """Whether the table says that this process has begun with it."""
    lost: bool = False
    """Whether its partition has gone to another member."""

    @property
    def tenant_id(self) -> str:
        """The tenant for whom it is handled; the default one when the message does not say."""
        return self.line[0]

    @property
    def envelope(self) -> MessageEnvelope | None:
        """What it was read as, if it could be read."""
        return self.content.envelope if isinstance(self.content, Prepared) else None

    @property
    def recorded_at(self) -> datetime | None:
        """When it occurred, as the message says; else when it came."""
        envelope = self.envelope
        return (envelope and envelope.occurred_at) or self.came_at

    @property
    def key(self) -> str | None:
        """The key whose order it keeps."""
        return self.line[1]


def in_hand(delivery: Delivery, content: Prepared | Unreadable, arrival: int = 0) -> InHand:
    """Take a delivery in hand; what cannot be read has no key that could be trusted."""
    message_id = message_id_of(delivery, content)
    if isinstance(content, Unreadable):
        return InHand(delivery, content, (DEFAULT_TENANT, None, message_id), message_id, arrival)
    envelope = content.envelope
    own = message_id if envelope.key is None else ""
    return InHand(delivery, content, (envelope.tenant_id, envelope.key, own), message_id, arrival)


def lane_of(line: Line, lanes: int) -> int:
    """Return the lane in which a line's messages go one after the other, in this process."""
    return hash(line) % lanes


@dataclass(slots=True)
class _Held:
    """A line that waits, and its messages so far."""

    until: float
    items: deque[InHand] = field(default_factory=deque)


class Lane:
    """Give out batches, never two at once, and never a message before an older one of its line.

    A batch is of one tenant. A line that is held costs nothing: its messages are met once and laid
    beside it, and return to the front when its time has come.
    """

    def __init__(self) -> None:
        self._ready: deque[InHand] = deque()
        self._held: dict[Line, _Held] = {}
        self._out: list[InHand] = []

    def __len__(self) -> int:
        return len(self._ready) + len(self._out) + sum(len(h.items) for h in self._held.values())

    def __iter__(self) -> Iterator[InHand]:
        """Yield what waits and what is at work; of each line in its order."""
        yield from self._out
        for held in self._held.values():
            yield from held.items
        yield from self._ready

    @property
    def at_work(self) -> Sequence[InHand]:
        """The batch that is out."""
        return self._out

    def put(self, item: InHand) -> None:
        """Take a message in, behind all others of its line."""
        self._ready.append(item)

    def take(self, now: float, most: int) -> list[InHand]:
        """Give out the next batch, oldest first; nothing while one is out."""
        if self._out:
            return []
        self._release(now)
        passed: list[InHand] = []
        batch = self._out = []
        while self._ready and len(batch) < most:
            item = self._ready.popleft()
            if item.line in self._held:
                self._held[item.line].items.append(item)
            elif batch and item.tenant_id != batch[0].tenant_id:
                passed.append(item)
            elif batch and item.alone:
                self._ready.appendleft(item)
                break
            else:
                batch.append(item)
                if item.alone:
                    break
        self._ready.extendleft(reversed(passed))
        return list(batch)

    @property
    def held(self) -> int:
        """How many messages wait beside a line that is held."""
        return sum(len(held.items) for held in self._held.values())

    def take_longest_held(self) -> tuple[list[InHand], float]:
        """Give out all of the held line that has most, and until when it waits; none while one is out."""
        if self._out or not self._held:
            return [], 0.0
        line = max(self._held, key=lambda found: len(self._held[found].items))
        items, until = self.followers(line), self._held[line].until
        self.remove(items)
        self._out = items
        return list(items), until

    def finish(self, back: Sequence[InHand] = (), held: Mapping[Line, float] | None = None) -> None:
        """Take a batch back: what is not finished, in its order, and which lines wait until when."""
        self._out = []
        for line, until in (held or {}).items():
            self._held[line] = _Held(until)
        for item in reversed(back):
            if item.lost:
                continue
            if item.line in self._held:
                self._held[item.line].items.appendleft(item)
            else:
                self._ready.appendleft(item)
        for line in held or {}:
            if not self._held[line].items:
                del self._held[line]  # its message was lost meanwhile

    def followers(self, line: Line) -> list[InHand]:
        """Return what waits of a line, in its order, without taking it out."""
        held = self._held.get(line)
        return [*(held.items if held else ()), *(i for i in self._ready if i.line == line)]

    def remove(self, items: Collection[InHand]) -> None:
        """Take messages out that are finished without having been in a batch."""
        gone = set(items)
        self._ready = deque(item for item in self._ready if item not in gone)
        for line, held in list(self._held.items()):
            held.items = deque(item for item in held.items if item not in gone)
            if not held.items:
                del self._held[line]

    def lose(self, partitions: Collection[str]) -> list[InHand]:
        """Forget what waits of partitions; what is at work will not come back. Return both."""
        lost = [item for item in self if item.delivery.partition in partitions]
        for item in lost:
            item.lost = True
        self.remove(lost)
        return lost

    def next_due(self) -> float | None:
        """Return when the next held line is due; None when none is held."""
        return min((held.until for held in self._held.values()), default=None)

    @property
    def waits(self) -> bool:
        """Whether a batch can be taken without waiting for a held line."""
        return bool(self._ready)

    def _release(self, now: float) -> None:
        for line in [line for line, held in self._held.items() if held.until <= now]:
            self._ready.extendleft(reversed(self._held.pop(line).items))
