"""One life of a Pulsar producer: hand messages over, collect the answers of its own threads."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import _pulsar

from pillarbox.bus.handover import DISCONNECTED, HELD_BACK, NO_ANSWER
from pillarbox.bus.odd_text import ENCODING_ERRORS, refuse_odd_text
from pillarbox.bus.outcome import ACCEPTED, Accepted, PublishOutcome, Refused
from pillarbox.bus.pulsar.outcomes import outcome_of
from pillarbox.bus.pulsar.settings import WINDOW
from pillarbox.event.envelope import MessageEnvelope

Build = Callable[[MessageEnvelope], Any]
"""Begin the client's message of an envelope, in the moment when it is sent."""

_CHUNK: Final = 500
_LOOK_AGAIN: Final = 0.02
_OK: Final = _pulsar.Result.Ok


class Sent:
    """Messages that were sent together, with a slot for the answer to each.

    The client answers from threads of its own, once for each message. A slot is a dict and the
    callback its `setdefault`, so that no Python code runs there, at half the cost.
    """

    __slots__ = ("done", "slots")

    def __init__(self, count: int) -> None:
        self.slots: list[dict[Any, Any]] = [{} for _ in range(count)]
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def finish(self) -> None:
        """Wake the caller."""
        if not self.done.done():
            self.done.set_result(None)


class ProducerLife:
    """Publish to one topic; an answer that does not come ends the life."""

    def __init__(self, topic: str, producer: Any) -> None:
        self.topic = topic
        self.ended = False
        self._loop = asyncio.get_running_loop()
        self.used = self._loop.time()
        # The wrapper checks and copies each property anew, and has no flush that does not block.
        self._producer = producer._producer  # noqa: SLF001
        self._under_way: deque[Sent] = deque()
        self._waiting = 0
        self._woken = False
        self._timer: asyncio.TimerHandle | None = None
        self._rest: PublishOutcome = NO_ANSWER
        self._farewell: asyncio.Future[None] = self._loop.create_future()

    @property
    def connected(self) -> bool:
        """Whether messages would leave at once."""
        return not self.ended and bool(self._producer.is_connected())

    @property
    def busy(self) -> bool:
        """Whether messages wait for answers."""
        return bool(self._under_way)

    async def hand_over(
        self, batch: Sequence[MessageEnvelope], build: Build, deadline: float
    ) -> list[Sent]:
        """Send messages in order, as far as the window allows at a time."""
        sent: list[Sent] = []
        self.used = self._loop.time()
        for start in range(0, len(batch), _CHUNK):
            while self._waiting > WINDOW - _CHUNK and not self.ended:
                await self._wait_for(self._under_way[0], deadline)
            if self.ended:
                break
            sent.append(self._send(batch[start : start + _CHUNK], build))
            await asyncio.sleep(0)
        return sent

    async def answers(
        self, sent: Sequence[Sent], count: int, deadline: float
    ) -> list[PublishOutcome]:
        """Wait for the answers to messages; those that were not sent follow as held back."""
        for part in sent:
            await self._wait_for(part, deadline)
        self.used = self._loop.time()
        outcomes = [self._outcome(slot) for part in sent for slot in part.slots]
        if not all(isinstance(outcome, Accepted | Refused) for outcome in outcomes):
            # Nobody knows what the client still holds: the next call gets a new producer.
            self.end(DISCONNECTED)
        return outcomes + [HELD_BACK] * (count - len(outcomes))

    async def quiet(self, deadline: float) -> None:
        """Wait until every message has its answer."""
        while self._under_way:
            await self._wait_for(self._under_way[-1], deadline)

    def end(self, rest: PublishOutcome) -> asyncio.Future[None]:
        """Give everything without an answer this one; return the farewell to the broker."""
        if self.ended:
            return self._farewell
        self.ended = True
        self._rest = rest
        if self._timer is not None:
            self._timer.cancel()
        for part in self._under_way:
            part.finish()
        self._under_way.clear()
        self._producer.close_async(lambda _: self._call(_finish, self._farewell))
        return self._farewell

    def _send(self, batch: Sequence[MessageEnvelope], build: Build) -> Sent:
        sent = Sent(len(batch))
        send = self._producer.send_async
        for envelope, slot in zip(batch, sent.slots, strict=True):
            try:
                send(build(envelope).build(), slot.setdefault)
            except ENCODING_ERRORS:
                slot.setdefault(refuse_odd_text(envelope))
        self._under_way.append(sent)
        self._waiting += len(batch)
        self._producer.flush_async(self._wake)
        self._look_later()
        return sent

    async def _wait_for(self, sent: Sent, deadline: float) -> None:
        left = deadline - self._loop.time()
        if not sent.done.done():
            await asyncio.wait((sent.done,), timeout=max(0.0, left))
        if not sent.done.done():
            self.end(NO_ANSWER)

    def _outcome(self, slot: dict[Any, Any]) -> PublishOutcome:
        for result in slot:
            if isinstance(result, Refused):
                return result
            return ACCEPTED if result == _OK else outcome_of(result.name, self.topic)
        return self._rest

    def _wake(self, result: object) -> None:
        """Have the answers looked at, from a thread of the client; one call for a burst."""
        del result
        if not self._woken:
            self._woken = True
            self._call(self._look)

    def _call(self, what: Callable[..., None], *arguments: object) -> None:
        with suppress(RuntimeError):  # The loop is closed, and nobody waits any more.
            self._loop.call_soon_threadsafe(what, *arguments)

    def _look(self) -> None:
        """Take the answers that have come."""
        self._woken = False
        while self._under_way and all(self._under_way[0].slots):
            sent = self._under_way.popleft()
            self._waiting -= len(sent.slots)
            sent.finish()
        self._look_later()

    def _look_later(self) -> None:
        # The client calls no flush back for messages that it has sent before it.
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if self._under_way and not self.ended:
            self._timer = self._loop.call_later(_LOOK_AGAIN, self._look)


def _finish(farewell: asyncio.Future[None]) -> None:
    if not farewell.done():
        farewell.set_result(None)
