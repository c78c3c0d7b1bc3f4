"""A group of members on the memory bus: whose partition is whose, and what each has in hand."""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from pillarbox.bus.partition import partition_for, partitions_of
from pillarbox.bus.subscription import Delivery
from pillarbox.event.cloudevents import CONTENT_TYPE, binary_headers
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.event.incoming import Incoming

_A_MOMENT: Final = 0.05
_headers: Final = binary_headers("ce_")
Chosen = Callable[[Incoming], bool]


class Member(Protocol):
    """One who reads as part of a group."""

    async def give_up(self, partitions: Collection[str]) -> None:
        """Finish with partitions that go to another member."""
        ...

    def wake(self) -> None:
        """Look again: there may be something to receive."""
        ...


class Placed(NamedTuple):
    """A message of a foreign producer, who chose the partition."""

    message: Incoming
    partition: int

    @property
    def topic(self) -> str:
        """The topic of the message."""
        return self.message.topic


class Log:
    """All messages in the order of their arrival, for every group."""

    def __init__(self) -> None:
        self.messages: list[MessageEnvelope | Placed] = []
        self.groups: dict[str, Group] = {}

    def append(self, message: MessageEnvelope | Placed) -> None:
        """Keep a message and wake those who wait for one."""
        self.messages.append(message)
        for group in self.groups.values():
            group.wake()

    def group(self, name: str, topics: Sequence[str], partitions: int) -> "Group":
        """Return the group of a consumer."""
        return self.groups.setdefault(name, Group(self, topics, partitions))


@dataclass(slots=True, eq=False)
class Entry:
    """A message in a partition; `turn` counts its deliveries, `place` says when it is next."""

    message: Incoming
    partition: str
    position: int
    place: int
    holder: Member | None = None
    turn: int = 0
    done: bool = False


@dataclass(slots=True, eq=False)
class Partition:
    """Messages that come in order: those that wait, and those that somebody has in hand."""

    name: str
    owner: Member | None = None
    waiting: deque[Entry] = field(default_factory=deque)
    delivered: list[Entry] = field(default_factory=list)

    def put_back(self, entries: Iterable[Entry]) -> None:
        """Let entries be delivered again, before all that came later."""
        returned = [entry for entry in entries if not entry.done and entry.holder is not None]
        for entry in returned:
            entry.holder = None
            self.delivered.remove(entry)
        self.waiting = deque(sorted([*returned, *self.waiting], key=lambda entry: entry.place))


class Group:
    """Share the partitions of some topics among members; a partition has one owner."""

    def __init__(self, log: Log, topics: Sequence[str], partitions: int) -> None:
        self._log, self._count, self._read = log, partitions, 0
        self._members: list[Member] = []
        self._partitions = {
            name: Partition(name) for topic in topics for name in partitions_of(topic, partitions)
        }
        self._topics = frozenset(topics)
        self._sharing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def wake(self) -> None:
        """Tell every member that there may be something to receive."""
        for member in self._members:
            member.wake()

    async def join(self, member: Member) -> None:
        """Take a member in; it gets its partitions as soon as the others have let go of them."""
        self._members.append(member)
        await self._share_soon()

    async def leave(self, member: Member) -> None:
        """Let a member go; what it has in hand is delivered to others."""
        if member in self._members:
            self._members.remove(member)
            for name in self.owned_by(member):
                self._hand_over(self._partitions[name], None)
            await self._share_soon()

    async def lose(self, member: Member, names: Collection[str], *, noticed: bool) -> None:
        """Take partitions from a member and give them to the next one, or to itself again."""
        async with self._sharing:
            heir = self._members[(self._members.index(member) + 1) % len(self._members)]
            await self._take_from(member, names, noticed=noticed)
            for name in names:
                self._hand_over(self._partitions[name], heir)
        self.wake()

    def owned_by(self, member: Member) -> list[str]:
        """Name the partitions of a member."""
        return [name for name, found in self._partitions.items() if found.owner is member]

    def take(self, member: Member, most: int) -> list[Delivery]:
        """Put the next messages into a member's hands, in the order of each partition."""
        self._take_in()
        owned = [self._partitions[name] for name in self.owned_by(member)]
        taken: list[Delivery] = []
        while len(taken) < most and (owned := [found for found in owned if found.waiting]):
            taken += [_delivery(found, member) for found in owned[: most - len(taken)]]
        return taken

    def finish(self, member: Member, deliveries: Sequence[Delivery]) -> None:
        """Be done with messages that this member still has in hand."""
        for entry in _still_held(member, deliveries):
            entry.done, entry.holder = True, None

    def put_back(self, member: Member, deliveries: Sequence[Delivery]) -> None:
        """Let messages be delivered again, in their order."""
        held = _still_held(member, deliveries)
        for found in self._partitions.values():
            found.put_back([entry for entry in held if entry.partition == found.name])
        self.wake()

    def redeliver(self, chosen: Chosen) -> None:
        """Deliver what was delivered once more, behind everything that waits."""
        self._take_in()
        for found in self._partitions.values():
            again = [entry for entry in found.delivered if chosen(entry.message)]
            last = len(self._log.messages)
            found.waiting += [
                Entry(entry.message, entry.partition, entry.position, last, turn=entry.turn)
                for entry in again
            ]
        self.wake()

    def shuffle(self, choose: random.Random) -> None:
        """Deliver what waits in another order, in which only each key's own order is kept."""
        self._take_in()
        for found in self._partitions.values():
            keys = [entry.message.key for entry in found.waiting]
            lines: dict[str | None, deque[Entry]] = {key: deque() for key in keys}
            for entry in found.waiting:
                lines[entry.message.key].append(entry)
            choose.shuffle(keys)
            places = sorted(entry.place for entry in found.waiting)
            mixed = [lines[key].popleft() for key in keys]
            for entry, place in zip(mixed, places, strict=True):
                entry.place = place
            found.waiting = deque(mixed)

    def waiting(self) -> int:
        """Count what nobody has in hand."""
        self._take_in()
        return sum(len(found.waiting) for found in self._partitions.values())

    async def _share_soon(self) -> None:
        """Share the partitions anew; a member that is slow to let go holds up nobody else."""
        task = asyncio.create_task(self._share(), name="pillarbox-memory-share")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.wait({task}, timeout=_A_MOMENT)

    async def _share(self) -> None:
        """Give the partitions to the members in turn; those that lose one finish with it first."""
        async with self._sharing:
            while moved := self._misplaced():
                for member in list(self._members):
                    if lost := [name for name in moved if self._partitions[name].owner is member]:
                        await self._take_from(member, lost, noticed=True)
                # Members may have come and gone meanwhile: whoever is due now gets them.
                for name, heir in self._due_owners().items():
                    if self._partitions[name].owner is None:
                        self._hand_over(self._partitions[name], heir)
        self.wake()

    def _due_owners(self) -> dict[str, Member | None]:
        members: list[Member | None] = [*self._members] or [None]
        return {name: members[at % len(members)] for at, name in enumerate(self._partitions)}

    def _misplaced(self) -> list[str]:
        due = self._due_owners()
        return [name for name in due if self._partitions[name].owner is not due[name]]

    async def _take_from(self, member: Member, names: Collection[str], *, noticed: bool) -> None:
        """Give a member nothing more of partitions, and let it finish with what it has."""
        for name in names:
            self._partitions[name].owner = None
        if noticed:
            await member.give_up(names)

    def _hand_over(self, partition: Partition, heir: Member | None) -> None:
        partition.owner = heir
        partition.put_back(list(partition.delivered))

    def _take_in(self) -> None:
        """Put what arrived since the last look into the partitions."""
        for position in range(self._read, len(self._log.messages)):
            message = self._log.messages[position]
            if message.topic in self._topics:
                name = _partition_of(message, self._count)
                entry = Entry(_incoming(message), name, position, position)
                self._partitions[name].waiting.append(entry)
        self._read = len(self._log.messages)


def _delivery(partition: Partition, member: Member) -> Delivery:
    entry = partition.waiting.popleft()
    entry.holder, entry.turn = member, entry.turn + 1
    partition.delivered.append(entry)
    position = str(entry.position)
    return Delivery(
        entry.message, partition.name, position, entry.turn > 1, token=(entry, entry.turn)
    )


def _still_held(member: Member, deliveries: Sequence[Delivery]) -> list[Entry]:
    tokens: list[tuple[Entry, int]] = [delivery.token for delivery in deliveries]
    return [entry for entry, turn in tokens if entry.holder is member and entry.turn == turn]


def _partition_of(message: MessageEnvelope | Placed, count: int) -> str:
    if isinstance(message, Placed):
        return partitions_of(message.topic, count)[message.partition % count]
    return partition_for(message, count)


def _incoming(message: MessageEnvelope | Placed) -> Incoming:
    """Return a message as it would stand in a broker."""
    if isinstance(message, Placed):
        return message.message
    headers = dict(_headers(message))
    return Incoming(
        message.topic or "", message.key, headers, message.body(), headers.get(CONTENT_TYPE)
    )
