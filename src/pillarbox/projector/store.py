"""The port to the outbox: what the projector asks of a database, and the values they exchange."""

from collections.abc import (
    AsyncIterator,
    Collection,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from collections.abc import Set as AbstractSet
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from pillarbox.event.envelope import MessageEnvelope
from pillarbox.outbox.release import CHUNK, DECIDED, EXPIRED, SKIPPED
from pillarbox.words import storable, storable_class

UNREADABLE: Final = "unreadable"
"""Why an event is refused without being sent: its headers are no text by name, or no driver reads its time."""

KILLER: Final = "killer"
"""Why an event is DEAD that was alone in flight each time its projector died."""

UNCOUNTED: Final = frozenset({EXPIRED, KILLER})
"""What raises no attempt when it is written: it was not refused, or it is counted already."""

DUE_AT_ONCE: Final = 1_000
"""How many events that are due are brought back at a time."""

DUE_WINDOW: Final = 4 * DUE_AT_ONCE
"""Among how many they are chosen, from either end of what is due."""

Lane = tuple[str, str]
"""A tenant and a key: the events that keep an order among themselves."""


class OutboxEvent(NamedTuple):
    """One claimed event; a named tuple because one is made for every row.

    `age` and `expires_in` are seconds, as they were when it was read.
    """

    seq: int
    shard: int
    lane: Lane
    topic: str
    attempts: int
    blocked: bool
    blocker: bool
    expires_in: float | None
    age: float
    envelope: MessageEnvelope
    unreadable: bool = False
    scheduled: bool = False
    """Whether it may go later than others of its key: it was to, or it failed, or was retried."""

    @property
    def event_id(self) -> str:
        """The id of the event."""
        return self.envelope.event_id

    @property
    def unordered(self) -> bool:
        """Whether the event stands alone in its lane."""
        return self.lane[1] == self.envelope.event_id


@dataclass(frozen=True, slots=True)
class Member:
    """A running projector, as others see it."""

    member_id: UUID
    service: str
    host: str
    process_id: int
    version: str


@dataclass(frozen=True, slots=True)
class Suspects:
    """Events that a dead owner had in flight, and the size of its largest unfinished claim."""

    seqs: frozenset[int] = frozenset()
    largest: int = 0

    @property
    def alone(self) -> int | None:
        """The number of the event that was alone in flight, and therefore counts as the killer."""
        return next(iter(self.seqs)) if len(self.seqs) == 1 else None


@dataclass(frozen=True, slots=True)
class Ownership:
    """The shards that a member owns, with the epoch of each, after a look at the leases."""

    epochs: Mapping[int, int]
    hand_over: tuple[int, ...] = ()
    suspects: Suspects = Suspects()


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an event failed, and when it is tried again; without a delay it is DEAD."""

    code: str
    reason: str
    delay: float | None = None

    @classmethod
    def told(cls, code: str, reason: str, delay: float | None) -> "Failure":
        """Take a bus's words so that every database stores them, and none means something of ours."""
        own = f"bus-{code}" if code in DECIDED or code in UNCOUNTED else code
        return cls(storable_class(own), storable(reason), delay)

    def decided(self, *, skip_dead: bool) -> "Failure":
        """Return what is written: where DEAD events are skipped, the policy has decided at once."""
        if skip_dead and self.delay is None and self.code not in DECIDED:
            return Failure(SKIPPED, f"{self.code}: {self.reason}")
        return self

    def blocks(self, event: OutboxEvent, *, skip_dead: bool) -> bool:
        """Tell whether the event's key has to wait."""
        return not (event.unordered or self.decided(skip_dead=skip_dead).code in DECIDED)


@dataclass(slots=True)
class Settlement:
    """Outcomes to be written together."""

    sent: list[OutboxEvent] = field(default_factory=list)
    failed: list[tuple[OutboxEvent, Failure]] = field(default_factory=list)
    dead: list[tuple[OutboxEvent, Failure]] = field(default_factory=list)
    aside: list[OutboxEvent] = field(default_factory=list)
    waiting: list[OutboxEvent] = field(default_factory=list)
    counted: list[OutboxEvent] = field(default_factory=list)
    ended: list[UUID] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.sent or self.ended) or self.troubled

    @property
    def troubled(self) -> bool:
        """Whether there is more than events that were sent."""
        return bool(
            self.failed
            or self.dead
            or self.aside
            or self.waiting
            or self.counted
            or any(event.blocker for event in self.sent)
        )

    @property
    def refused(self) -> list[tuple[OutboxEvent, Failure]]:
        """What is FAILED or DEAD; of one key the later event first, for it was refused first.

        Only an older event passes a lane that is stopped. The first to be refused blocks the key.
        """
        return sorted((*self.failed, *self.dead), key=lambda pair: -pair[0].seq)

    def leaving(self) -> Iterator[OutboxEvent]:
        """Name the events that are in hand no more once this is written."""
        yield from self.sent
        for event, _ in (*self.failed, *self.dead):
            yield event
        yield from self.aside
        yield from self.waiting

    def of_blocked_keys(self) -> Iterator[OutboxEvent]:
        """Name the events whose keys are to be blocked or let go, or are blocked."""
        for event, _ in (*self.failed, *self.dead):
            yield event
        yield from self.aside
        yield from self.waiting
        yield from (event for event in self.sent if event.blocker)

    def without(self, lost: Container[int]) -> "Settlement":
        """Leave out the events of shards that are not ours any more."""
        return Settlement(
            sent=[event for event in self.sent if event.shard not in lost],
            failed=[pair for pair in self.failed if pair[0].shard not in lost],
            dead=[pair for pair in self.dead if pair[0].shard not in lost],
            aside=[event for event in self.aside if event.shard not in lost],
            waiting=[event for event in self.waiting if event.shard not in lost],
            counted=[event for event in self.counted if event.shard not in lost],
            ended=self.ended,
        )

    def purge(self, gone: Container[int]) -> None:
        """Forget the outcomes of events by their numbers."""
        for events in (self.sent, self.aside, self.waiting, self.counted):
            events[:] = [event for event in events if event.seq not in gone]
        for failures in (self.failed, self.dead):
            failures[:] = [pair for pair in failures if pair[0].seq not in gone]


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of a settlement: shards whose lease was lost, rows that must be read again."""

    lost: frozenset[int] = frozenset()
    again: tuple[OutboxEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class Control:
    """What operators asked of a tenant's topic; `*` stands for all."""

    tenant_id: str
    topic: str
    paused: bool
    events_per_second: int | None


@dataclass(frozen=True, slots=True)
class Promoted:
    """How many events became due, how long until the next one does, whether more are due already."""

    events: int
    next_due: timedelta | None
    more: bool = False


NO_LIMITS: Final[Mapping[str, int]] = MappingProxyType({})


class ClaimRequest(NamedTuple):
    """What to claim: for these shards, at most so many events, none of these tenants.

    With `news` what has come to tenants without a backlog is enough, while others have one. Of the
    tenants in `quotas` about so many events: more only of what came late or came back.
    """

    claim_id: UUID
    epochs: Mapping[int, int]
    limit: int
    in_hand: AbstractSet[int]
    passed_over: Collection[str] = ()
    news: bool = False
    quotas: Mapping[str, int] = NO_LIMITS


class Claimed(NamedTuple):
    """The events of a claim.

    `more` tells that others may be waiting; not `held`, that a lease is lost and nothing was claimed;
    `news` names the tenants without a backlog to which some came, while others have one.
    """

    events: Sequence[OutboxEvent]
    more: bool
    held: bool = True
    news: AbstractSet[str] = frozenset()


class StoreUnavailable(Exception):
    """The database did not answer; the cause says why. Nothing is known of what was asked."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(
            f"{type(cause).__name__}: {str(cause).splitlines()[0] if str(cause) else ''}"
        )


class Store(Protocol):
    """Read and write the outbox for one member.

    A call that fails raises `StoreUnavailable`; every call may be repeated. `claim` and the others
    may run at the same time, each not with itself.
    """

    async def join(self, member: Member) -> None:
        """Check the schema, refuse an overlapping scope, become a member."""
        ...

    async def keep(self, active: Sequence[UUID]) -> Ownership:
        """Show signs of life, renew and take leases; clear claims of ours that are not active."""
        ...

    async def hand_over(self, shards: Sequence[int]) -> None:
        """Give leases back."""
        ...

    async def leave(self) -> None:
        """Give everything back and be no member any more."""
        ...

    async def claim(self, request: ClaimRequest) -> Claimed:
        """Read the next events and commit a claim on them, in this order, durably."""
        ...

    async def settle(self, settlement: Settlement, epochs: Mapping[int, int]) -> Settled:
        """Write outcomes, fenced: a shard whose lease is lost is not written."""
        ...

    def read_again(self, events: Sequence[OutboxEvent]) -> None:
        """Have events read again that are not in hand any more."""
        ...

    def forget(self, shards: Iterable[int]) -> None:
        """Have shards read from their beginning when they are claimed for again."""
        ...

    async def promote(self, shards: Sequence[int]) -> Promoted:
        """Make claimable what has become due, a part of it if it is much: of each tenant in turn."""
        ...

    async def waiting_topics(self) -> Sequence[str]:
        """Name the topics that keys wait for."""
        ...

    async def release_topic(
        self, topic: str, keys: int, apart: Mapping[str, int], chunk: int = CHUNK
    ) -> int:
        """Let go of keys that wait for a topic; return how many.

        Of a tenant that is named `apart` not more than told there; of each key not more events than
        the chunk, and the next when these are settled.
        """
        ...

    async def controls(self) -> Sequence[Control]:
        """Read what operators asked for."""
        ...

    async def log_readers(self) -> Sequence[str]:
        """Name the read models that follow the outbox's log, and need its rows."""
        ...

    def wake_ups(self) -> AbstractAsyncContextManager[AsyncIterator[None]]:
        """Hear of commits; what is missed costs latency only."""
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...
