"""One life of Kafka's producer: it ends with its first failed message, so no gap can follow."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final
from weakref import WeakSet

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from pillarbox.bus.handover import HELD_BACK, NO_ANSWER, Handover
from pillarbox.bus.kafka.footing import Footing
from pillarbox.bus.kafka.login import Login
from pillarbox.bus.kafka.outcomes import outcome_of
from pillarbox.bus.odd_text import ENCODING_ERRORS, refuse_odd_text
from pillarbox.bus.outcome import ACCEPTED, PublishOutcome
from pillarbox.event.cloudevents import Headers
from pillarbox.event.envelope import MessageEnvelope

_log = logging.getLogger("pillarbox.bus.kafka")

SettingsFor = Callable[[int], Mapping[str, object]]
"""The settings of a producer that waits so many milliseconds for more messages."""
Encode = Callable[[MessageEnvelope], tuple[bytes | None, Headers]]

_AT_ONCE: Final = 0
_TOGETHER: Final = 10
# So many messages in a call go together.
_BULK: Final = 500
# After so many smaller calls in a row no more large ones are expected.
_SMALL_CALLS: Final = 3
_IDLE: Final = 1.0
_SHORTEST: Final = 0.001
# While many answers are missing, each look costs the loop more than it wins.
_MANY: Final = 200
_WITH_MANY: Final = 0.004
_LONGEST: Final = 0.02
# For a few answers the loop itself waits, a moment at a time: its timers are too coarse for what
# comes within a millisecond or two.
_FEW: Final = 20
_MOMENT: Final = 0.001  # the client waits for whole milliseconds
_SOON: Final = 0.006
_PATIENCE: Final = 0.1  # of the time waited so far, before looking again
_GRACE: Final = 1.0
_FAREWELL: Final = 2.0
_ANY_PARTITION: Final = -1
_NOW: Final = 0
# Turns of the loop until whoever awaits a call, also by a task of its own, goes on.
_HEARD: Final = 2


class ProducerLife:
    """Hand messages to a producer and collect the answers, on the event loop itself.

    There are two producers: one sends at once, the other waits a little, so that many messages share
    a request. They never have messages under way at the same time, so they keep a key's order as one
    would. The loop asks for answers every millisecond while messages are under way, and waits for a
    few without letting go: a thread that waits for them would fight with the loop for the
    interpreter, at a third of the rate. With `gapless`
    the first failure ends the life: nothing more is sent, and what has no answer gets one. Without
    it the caller sends one message at a time.
    """

    def __init__(
        self,
        settings: SettingsFor,
        encode: Encode,
        login: Login,
        partitions: Mapping[str, int],
        *,
        gapless: bool,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        # Both from the beginning: a producer takes half a second to be ready.
        self._producers: dict[int, Any] = {
            linger: Producer({**settings(linger), **login.settings(), "error_cb": self._heard})
            for linger in ((_AT_ONCE, _TOGETHER) if gapless else (_AT_ONCE,))
        }
        self._producer = self._producers[_AT_ONCE]
        self._footings = {linger: Footing(partitions) for linger in self._producers}
        self._footing = self._footings[_AT_ONCE]
        self._small_calls = 0
        self._encode = encode
        self._login = login
        self._gapless = gapless
        self._handovers: deque[Handover] = deque()
        self._progress = self._loop.time()
        self._grace_ends = 0.0
        self._timer = self._loop.call_later(_IDLE, self._look)
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._errors: set[str] = set()
        self._calls: WeakSet[object] = WeakSet()
        self.failed = False
        self.reached = False
        self._farewell: asyncio.Future[None] | None = None

    @property
    def retired(self) -> bool:
        """Whether a new life may stand: this one has ended, and every caller has heard of it.

        A caller that has not heard could have later messages of a key sent by the new life, while
        earlier ones were given to this one and not sent.
        """
        return self.ended and not self._calls

    def enter(self, call: object) -> None:
        """Note that a call was made on this life; one that is thrown away unawaited is forgotten."""
        self._calls.add(call)

    def leave(self, call: object, turns: int = _HEARD) -> None:
        """Note that a call is over; its caller hears of it within a few turns of the loop."""
        if turns:
            self._loop.call_soon(self.leave, call, turns - 1)
        else:
            self._calls.discard(call)

    @property
    def ended(self) -> bool:
        """Whether every message has its answer and none will be sent any more."""
        return self._over.done()

    async def hand_over(self, batch: Sequence[MessageEnvelope], deadline: float) -> Handover:
        """Hand messages to the client in order; the caller awaits `done` of what is returned."""
        await self._choose_producer(len(batch))
        handover = Handover(len(batch), deadline)
        self._handovers.append(handover)
        self._look_soon()
        rest: Sequence[int] = range(len(batch))
        if self._gapless and (firsts := self._footing.firsts(batch)):
            rest = sorted(set(rest).difference(firsts))
            await self._give(batch, firsts, handover, self._first_delivered, behind=len(rest))
        await self._give(batch, rest, handover, self._delivered)
        return handover

    async def _give(
        self,
        batch: Sequence[MessageEnvelope],
        places: Sequence[int],
        handover: Handover,
        delivered: Callable[..., None],
        *,
        behind: int = 0,
    ) -> None:
        """Give the client the messages at these places, once those before them are answered.

        `behind` is how many of the batch come after these.
        """
        given = 0
        try:
            while not self.failed:
                if handover.missing <= len(places) + behind:
                    given = self._produce(batch, places, given, handover, delivered)
                    if given == len(places):
                        break
                # Answers come by polling, and with them room in a queue that is full.
                await asyncio.sleep(_SHORTEST)
        finally:
            if given < len(places):
                self.fail()
                for place in places[given:]:
                    handover.answer(place, HELD_BACK)

    async def answered(self, handover: Handover) -> Sequence[PublishOutcome]:
        """Wait for the answers, and for the end of a life that has failed."""
        await handover.done
        if self.failed:
            await asyncio.shield(self._over)
        return handover.outcomes()

    async def over(self) -> None:
        """Wait until the life has ended; only for one that has failed."""
        await asyncio.shield(self._over)

    def fail(self) -> None:
        """Send nothing more; what is on the wire has a moment to be answered."""
        if self.failed or not self._gapless:
            return
        self.failed = True
        self._grace_ends = self._loop.time() + _GRACE
        for producer in self._producers.values():
            producer.purge(in_queue=True, in_flight=False, blocking=False)
        self._look_soon()

    def end(self, rest: PublishOutcome) -> asyncio.Future[None]:
        """Give everything without an answer this one; return the farewell to the producer."""
        if self._farewell is not None:
            return self._farewell
        self.failed = True
        self._timer.cancel()
        self._over.set_result(None)
        for handover in self._handovers:
            handover.end(rest)
        self._handovers.clear()
        producers = list(self._producers.values())
        self._producers.clear()
        self._producer = None
        self._farewell = self._loop.run_in_executor(None, _let_go, producers)
        return self._farewell

    async def _choose_producer(self, messages: int) -> None:
        """Change to the producer that suits so many messages, once nothing is under way."""
        linger = _TOGETHER if self._gapless and messages >= _BULK else _AT_ONCE
        self._small_calls = 0 if linger else self._small_calls + 1
        other = self._producer is not self._producers.get(linger)
        if self._handovers and other and (linger or self._is_quiet()):
            await asyncio.wait([self._handovers[-1].done])
        if not self.failed and not any(handover.missing for handover in self._handovers):
            self._producer, self._footing = self._producers[linger], self._footings[linger]

    def _is_quiet(self) -> bool:
        """Tell whether only small calls come, and little is under way that they would wait for."""
        under_way = sum(handover.missing for handover in self._handovers)
        return self._small_calls >= _SMALL_CALLS and under_way < _BULK

    def _produce(
        self,
        batch: Sequence[MessageEnvelope],
        places: Sequence[int],
        start: int,
        handover: Handover,
        delivered: Callable[..., None],
    ) -> int:
        """Give messages to the client; return how many places are done with."""
        if self.failed:
            return start
        encode, produce = self._encode, self._producer.produce
        given = start
        try:
            for given in range(start, len(places)):
                place = places[given]
                envelope = batch[place]
                topic, key = envelope.topic, envelope.key
                body, headers = encode(envelope)
                report = partial(delivered, handover, place, envelope)
                produce(topic, body, key, _ANY_PARTITION, report, None, _NOW, headers)
        except BufferError:
            return given
        except ENCODING_ERRORS:
            place = places[given]
            handover.answer(place, refuse_odd_text(batch[place]))
            self.fail()
            return given + 1
        except KafkaException as raised:
            error: KafkaError = raised.args[0]
            if not error.fatal() and error.name() != "_FATAL":
                place = places[given]
                handover.answer(place, outcome_of(error, batch[place].topic, alone=True))
                given += 1
            self.fail()
            return given
        return len(places)

    def _first_delivered(
        self,
        handover: Handover,
        place: int,
        envelope: MessageEnvelope,
        error: KafkaError | None,
        message: Message,
    ) -> None:
        if error is None:
            self._footing.stored(envelope.topic, envelope.key, message.partition() or 0)
        self._delivered(handover, place, envelope, error, message)

    def _delivered(
        self,
        handover: Handover,
        place: int,
        envelope: MessageEnvelope,
        error: KafkaError | None,
        message: Message,
    ) -> None:
        del message
        if error is None:
            handover.answer(place, ACCEPTED)
        elif not self.ended:
            handover.answer(place, outcome_of(error, envelope.topic, alone=not self._gapless))
            self.fail()

    def _look(self) -> None:
        """Take the answers that have come; end the life when its time is up."""
        if self.ended:
            return
        try:
            served = self._producer.poll(self._moment())
        except KafkaException:
            # The client raises its fatal error here; the message's own error comes beside it.
            served = 1
            self.fail()
        now = self._loop.time()
        if served:
            self._progress = now
        while self._handovers and not self._handovers[0].missing:
            self._handovers.popleft()
        if self.failed and (not self._handovers or now >= self._grace_ends):
            self.end(HELD_BACK)
        elif self._handovers and now >= self._handovers[0].deadline:
            self.end(NO_ANSWER)
        else:
            self._look_again(now)

    def _moment(self) -> float:
        """Return how long the loop may stand still for an answer: not while there is other work."""
        few = len(self._handovers) == 1 and 0 < self._handovers[0].missing <= _FEW
        return _MOMENT if few and self._loop.time() - self._progress < _SOON else 0

    def _look_again(self, now: float) -> None:
        delay = _IDLE
        if self._moment():
            delay = 0
        elif self._handovers:
            shortest = _WITH_MANY if self._handovers[0].missing > _MANY else _SHORTEST
            delay = min(max((now - self._progress) * _PATIENCE, shortest), _LONGEST)
        self._timer.cancel()
        self._timer = self._loop.call_later(delay, self._look)

    def _look_soon(self) -> None:
        self._progress = self._loop.time()
        self._timer.cancel()
        self._timer = self._loop.call_later(0 if self._moment() else _SHORTEST, self._look)

    def _heard(self, error: KafkaError) -> None:
        # Not now: the client aborts the process when it is called from within its own callback.
        self._loop.call_soon(self._log_in_anew)
        if error.name() not in self._errors:
            self._errors.add(error.name())
            _log.warning("kafka_client_error", extra={"code": error.name(), "reason": error.str()})

    def _log_in_anew(self) -> None:
        for producer in self._producers.values():
            self._login.renew(producer)


def _let_go(producers: list[Any]) -> None:
    """Empty producers and free them, in a thread: joining the client's own threads takes time.

    The client reports what was purged while an error of its own is set, to which Python objects, and
    never lets go of that error. With it stays this frame, which therefore must hold no producer in
    the end: its connections would stand for ever.
    """
    while producers:
        producer = producers.pop()
        producer.purge()
        try:
            producer.flush(_FAREWELL)
        except (KafkaException, SystemError) as error:
            _log.debug("kafka_producer_let_go", extra={"reason": str(error)})
        del producer
