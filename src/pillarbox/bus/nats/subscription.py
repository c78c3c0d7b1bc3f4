"""Receive from NATS JetStream, as the active member of durable pull consumers or its stand-in."""

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from nats.aio.msg import Msg

from pillarbox.bus.arrivals import Arrivals
from pillarbox.bus.nats.subscription_durables import GROUP, Terms, knows_pins
from pillarbox.bus.nats.subscription_lane import Lane
from pillarbox.bus.nats.subscription_line import (
    ACK,
    FAILURES,
    IN_PROGRESS,
    NAK,
    NAK_LATER,
    Ground,
    Line,
)
from pillarbox.bus.nats.subscription_message import arrival
from pillarbox.bus.nats.subscription_presence import BEAT, Presence
from pillarbox.bus.subscription import Delivery, Reception, Revoked, SubscriptionRequest
from pillarbox.errors import BusUnreachable

_log = logging.getLogger("pillarbox.bus.nats")

_SILENCE: Final = 1.0
_TURN: Final = 0.2
_AGAIN_AFTER: Final = 0.5
_LATE: Final = 1.0
_FAREWELL: Final = 2.0
_FEWEST: Final = 16
_PULLS_PER_PIN: Final = 3  # pulls in the time after which the pin goes to another member
_SIGNALS: Final = 3  # signs of life for each message in the server's patience
_NANOSECONDS: Final = 1_000_000_000
_WRONG_PIN: Final = "423"
_ALIVE: Final = "100"
_OVER: Final = ("404", "408")
_UNORDERED: Final = (
    "this server is older than 2.11 and cannot keep a consumer to one member: keys have no order "
    "when several members run; upgrade it"
)


class NatsSubscription:
    """One member of a consumer; of each partition one member at a time is given messages.

    The server pins a durable to one member. A member whose pin is gone finishes what it has; the next
    one hands nothing on before that. Messages in our hands are kept from being delivered again by a
    sign of life. What is given back is delivered again from here.
    """

    def __init__(self, ground: Ground, request: SubscriptionRequest) -> None:
        self._ground = ground
        self._request = request
        places = len(request.topics) * (ground.partitions or 1)
        self._terms = Terms(
            consumer=request.consumer,
            ack_wait=ground.ack_wait,
            pin_wait=ground.ack_wait / _SIGNALS,
            most=max(_FEWEST, request.window // places),
        )
        self._reception = Reception(orders_keys=True, hand_back_limit=None, longest_redelivery=None)
        self._line = Line(ground, self._terms)
        self._presence = Presence(
            repr((request.consumer, sorted(request.topics), ground.partitions))
        )
        self._arrivals = Arrivals(_place_of)
        self._lanes: list[Lane] = []
        self._inboxes: dict[Lane, str] = {}
        self._beat_at = 0.0
        self._signal_at = 0.0
        self._revoked: Revoked | None = None
        self._work: asyncio.Task[None] | None = None
        self._letting_go: set[asyncio.Task[None]] = set()
        self._failure: Exception | None = None
        self._news = asyncio.Event()
        self._closing = False

    @property
    def reception(self) -> Reception:
        """What this subscription can do; known once it has started."""
        return self._reception

    async def start(self, revoked: Revoked) -> Sequence[str]:
        """Make the durables and begin to ask; return what a consumer could miss."""
        self._revoked = revoked
        try:
            async with asyncio.timeout(self._ground.seconds):
                await self._line.open()
                await self._line.make_streams(self._request.topics)
                said = await self._listen()
        except FAILURES as error:
            await self._line.close()
            raise BusUnreachable(self._ground.shown, str(error) or type(error).__name__) from error
        self._work = asyncio.get_running_loop().create_task(self._keep_going())
        return [*self._ground.exposure(), *said]

    async def receive(self, most: int) -> Sequence[Delivery]:
        """Wait for messages, for a second at most."""
        if self._work is not None and self._work.done() and not self._closing:
            self._work.result()  # It never ends by itself, except with an error.
        if self._failure is not None:
            raise self._failure
        return await self._arrivals.take(most, _SILENCE)

    async def acknowledge(self, done: Sequence[Delivery]) -> None:
        """Tell the server what is finished."""
        finished: dict[Lane, list[int]] = defaultdict(list)
        for delivery in done:
            lane, sequence = delivery.token
            finished[lane].append(sequence)
        for lane, sequences in finished.items():
            await self._line.answer(lane.finish(sequences), ACK)

    async def give_back(self, unfinished: Sequence[Delivery]) -> None:
        """Deliver messages again, before later ones of their partition; another member those that go."""
        self._arrivals.put_back(
            found for found in unfinished if found.token[0].may_repeat(found.token[1])
        )

    async def lag(self) -> int | None:
        """Count what no member has received, over all partitions."""
        try:
            durables = self._line.durables
            said = [await durables.pending(lane.durable) for lane in self._lanes]
        except FAILURES:
            return None
        counts = [pending.waiting for pending in said if pending is not None]
        return len(self._arrivals) + sum(counts) if len(counts) == len(said) else None

    async def is_at_end(self) -> bool:
        """Tell whether nothing waits, also of what a member had in its hands that is gone."""
        if self._arrivals or self._closing:
            return False
        try:
            durables = self._line.durables
            said = [await durables.pending(lane.durable) for lane in self._lanes]
        except FAILURES:
            return False
        return bool(said) and all(
            found is not None and found.waiting + found.unacknowledged == 0 for found in said
        )

    async def close(self) -> None:
        """Give back what is unfinished, let another member in, and disconnect."""
        self._closing = True
        if self._work is not None:
            self._work.cancel()
            _, late = await asyncio.wait([self._work, *self._letting_go], timeout=_FAREWELL)
            for task in late:
                task.cancel()
        self._arrivals.drop({lane.durable.subject for lane in self._lanes})
        if self._line.stands:
            with suppress(*FAILURES):
                async with asyncio.timeout(_FAREWELL):
                    await self._leave()
        await self._line.close()

    async def _leave(self) -> None:
        pinned = [lane for lane in self._lanes if lane.pin is not None]
        for lane in self._lanes:
            await self._line.answer(lane.give_up(), NAK)
        for lane in pinned:
            await self._line.durables.unpin(lane.durable)
        await self._line.say(self._presence.subject, self._presence.goodbye())
        await self._line.client.flush()

    async def _listen(self) -> list[str]:
        """Begin with a new connection; return what is weak on the other side."""
        durables = self._line.durables
        found = await durables.ensure(self._request.topics, self._ground.partitions)
        ordered = knows_pins(self._line.client)
        if not self._lanes:
            self._lanes = [Lane(durable, self._terms.most, ordered=ordered) for durable in found]
        said, kept = await durables.survey(sorted({durable.stream for durable in found}))
        self._reception = Reception(
            orders_keys=ordered, hand_back_limit=None, longest_redelivery=kept
        )
        await self._line.listen(self._presence.subject, self._member_heard)
        await self._line.say(self._presence.subject, self._presence.beat())
        for lane in self._lanes:
            self._inboxes[lane] = self._line.client.new_inbox()
            await self._line.listen(self._inboxes[lane], partial(self._heard, lane))
            lane.unsettle()
            await self._pull(lane)
        return said if ordered else [*said, _UNORDERED]

    async def _heard(self, lane: Lane, message: Msg) -> None:
        self._notice_break()
        if not message.reply:
            await self._told(lane, (message.headers or {}).get("Status", ""))
            return
        if lane.letting_go or not lane.wanted or self._closing:
            # Not at once: as long as our pull stands, it would come straight back.
            await self._line.answer([message.reply], NAK_LATER)
            return
        self._arrivals.put(lane.came(arrival(message, lane)))
        if not lane.settled:
            self._news.set()
        if lane.asked <= 0:
            await self._pull(lane)

    async def _told(self, lane: Lane, status: str) -> None:
        """Hear that a pull has ended."""
        if status == _ALIVE or self._closing:
            return
        if status == _WRONG_PIN:
            lane.pin = None
            self._begin_letting_go(lane)
        elif status in _OVER:
            await self._pull(lane)
        else:
            lane.refused = True  # the server is going down, say, or the durable is gone
            lane.asked_at = self._now() - self._pull_seconds - _LATE + _AGAIN_AFTER

    async def _pull(self, lane: Lane) -> None:
        if self._closing or lane.letting_go or not lane.wanted:
            return
        asked: dict[str, object] = {
            "batch": lane.batch,
            "expires": round(self._pull_seconds * _NANOSECONDS),
        }
        if lane.ordered:
            asked["group"] = GROUP
        if lane.pin is not None:
            asked["id"] = lane.pin
        lane.asked, lane.asked_at = lane.batch, self._now()
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{lane.durable.stream}.{lane.durable.name}"
        await self._line.say(subject, json.dumps(asked).encode(), self._inboxes[lane])

    def _begin_letting_go(self, lane: Lane) -> None:
        if not lane.letting_go:
            lane.letting_go = True
            task = asyncio.get_running_loop().create_task(self._let_go(lane))
            self._letting_go.add(task)
            task.add_done_callback(self._letting_go.discard)

    async def _let_go(self, lane: Lane) -> None:
        """Finish with a partition that goes to another member; then stand in again."""
        name = lane.durable.subject
        self._arrivals.drop({name})
        try:
            if self._revoked is not None:
                await self._revoked([name])
        except Exception as error:  # noqa: BLE001 - it is raised where messages are received
            self._failure = error
        finally:
            pinned = lane.pin is not None
            await self._line.answer(lane.give_up(), NAK)
            lane.letting_go = False
        if pinned:
            with suppress(*FAILURES):  # The pin is gone before long in any case.
                await self._line.durables.unpin(lane.durable)
        await self._pull(lane)

    async def _keep_going(self) -> None:
        """Do what nobody else is woken for, until the end."""
        while not self._closing:
            unsettled = any(lane.held and not lane.settled for lane in self._lanes)
            with suppress(TimeoutError):
                async with asyncio.timeout(_TURN if unsettled else min(BEAT, self._signal_after)):
                    await self._news.wait()
            self._news.clear()
            try:
                await self._mend()
                await self._share_out()
                await self._sign()
                await self._settle()
            except FAILURES as error:
                _log.debug("nats_subscription_waits", extra={"reason": str(error)})
                await asyncio.sleep(_TURN)

    async def _mend(self) -> None:
        """Connect anew if the server threw us out; repeat pulls that were refused or not answered."""
        if not self._line.stands:
            async with asyncio.timeout(self._ground.seconds):
                await self._listen_anew()
        self._notice_break()
        since = self._now() - self._pull_seconds - _LATE
        late = [lane for lane in self._lanes if lane.asked_at <= since]
        await self._ask_about([lane for lane in late if lane.refused])
        for lane in late:
            await self._pull(lane)

    async def _ask_about(self, refused: Sequence[Lane]) -> None:
        """Ask side by side: a server that does not answer keeps our signs of life waiting only once."""
        try:
            async with asyncio.TaskGroup() as asking:
                for lane in refused:
                    asking.create_task(self._ask_after(lane))
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from failed.exceptions[0].__cause__

    async def _ask_after(self, lane: Lane) -> None:
        """Ask about a durable whose pull was refused; make one again that somebody has deleted."""
        with suppress(*FAILURES):
            if await self._line.durables.pending(lane.durable) is None:
                await self._make_again(lane)
            lane.refused = False

    async def _make_again(self, lane: Lane) -> None:
        """Begin with a new durable: it delivers all that is kept, and knows nothing of the old pin."""
        await self._line.make_streams([lane.durable.topic])
        await self._line.durables.make(lane.durable)
        _log.warning("nats_durable_made_again", extra={"durable": lane.durable.name})
        lane.pin = None
        self._begin_letting_go(lane)

    async def _listen_anew(self) -> None:
        await self._line.open()
        try:
            await self._listen()
        except BaseException:
            await self._line.close()
            raise

    async def _share_out(self) -> None:
        """Tell the others that we are there; take the partitions that fall to us, leave the rest."""
        now = self._now()
        if now >= self._beat_at:
            self._beat_at = now + BEAT
            await self._line.say(self._presence.subject, self._presence.beat())
        self._presence.forget_silent(now)
        ours = self._presence.share([lane.durable.subject for lane in self._lanes])
        for lane in self._lanes:
            wanted = not lane.ordered or lane.durable.subject in ours
            if wanted == lane.wanted:
                continue
            lane.wanted = wanted
            if wanted:
                await self._pull(lane)
            else:
                self._begin_letting_go(lane)

    async def _member_heard(self, message: Msg) -> None:
        if self._presence.heard(message.data, self._now()):
            self._beat_at = 0.0  # A new member learns at once who is there.
            self._news.set()

    async def _sign(self) -> None:
        """Tell the server, from time to time, that messages are being worked on."""
        if self._now() < self._signal_at:
            return
        self._signal_at = self._now() + self._signal_after
        for lane in self._lanes:
            await self._line.answer([held.reply for held in lane.held.values()], IN_PROGRESS)

    async def _settle(self) -> None:
        """Ask about lanes whose messages may be in the hands of others."""
        for lane in self._lanes:
            if not lane.held or lane.settled or lane.letting_go:
                continue
            durables, doubts = self._line.durables, lane.doubts
            said = await durables.pending(lane.durable)
            self._notice_break()
            if said is None:
                await self._make_again(lane)
            elif doubts == lane.doubts:  # Else the answer speaks of a time that is over.
                self._arrivals.put(lane.settle(said))

    def _notice_break(self) -> None:
        """Trust no lane after a break: messages may have been lost on the way."""
        if self._line.stands and self._line.broke():
            for lane in self._lanes:
                lane.unsettle()
                lane.asked_at = 0.0
            self._news.set()

    @property
    def _pull_seconds(self) -> float:
        return self._terms.pin_wait.total_seconds() / _PULLS_PER_PIN

    @property
    def _signal_after(self) -> float:
        return self._terms.ack_wait.total_seconds() / _SIGNALS

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _place_of(delivery: Delivery) -> tuple[str, int]:
    return delivery.partition, delivery.token[1]
