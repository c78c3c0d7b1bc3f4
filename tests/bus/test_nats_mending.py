"""A subscription of NATS whose pulls were all refused: it asks about its durables side by side."""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pillarbox.bus.nats.subscription import NatsSubscription
from pillarbox.bus.nats.subscription_lane import Durable, Lane
from pillarbox.bus.nats.subscription_line import Ground, Line
from pillarbox.bus.subscription import SubscriptionRequest
from pillarbox.errors import InvalidConfig

LANES = 6


@dataclass
class SilentLine:
    """A connection to a server that answers no question."""

    asked: int = 0
    all_asked: asyncio.Event = field(default_factory=asyncio.Event)
    pulled: list[str] = field(default_factory=list)
    stands: bool = True

    @property
    def durables(self) -> "SilentLine":
        return self

    async def pending(self, _: Durable) -> None:
        self.asked += 1
        if self.asked == LANES:
            self.all_asked.set()
        await self.all_asked.wait()
        raise TimeoutError

    async def say(self, subject: str, *_: object) -> None:
        self.pulled.append(subject.rpartition(".")[2])

    def broke(self) -> bool:
        return False


def subscription_on(line: SilentLine) -> Any:
    """Make a subscription all of whose pulls were refused."""
    ground = cast(Ground, SimpleNamespace(ack_wait=timedelta(seconds=15), partitions=LANES))
    own: Any = NatsSubscription(ground, SubscriptionRequest("pay", ("orders",), 100))
    own._line = cast(Line, line)
    for number in range(LANES):
        lane = Lane(Durable("orders", f"orders.{number}", "s", f"d{number}"), 16)
        lane.refused, lane.asked_at = True, -1_000.0
        own._lanes.append(lane)
        own._inboxes[lane] = "inbox"
    return own


async def test_a_server_that_answers_nothing_is_waited_for_once_and_not_for_each_partition() -> (
    None
):
    line = SilentLine()

    async with asyncio.timeout(20):
        await subscription_on(line)._mend()

    assert line.pulled == [f"d{number}" for number in range(LANES)]


async def test_what_ends_a_subscription_is_raised_as_it_is_with_its_cause() -> None:
    cause = KeyError("orders")

    async def refuse(_: Durable) -> None:
        raise InvalidConfig("topics", "has no stream", "make it") from cause

    line = SilentLine()
    line.pending = refuse  # type: ignore[method-assign] # a stub's

    with pytest.raises(InvalidConfig) as raised:
        await subscription_on(line)._mend()

    assert raised.value.__cause__ is cause
