"""Our projector in a process of its own: empty the outbox once, or serve until SIGTERM."""

import argparse
import asyncio
import json
import logging
import signal
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from benchmarks.sides.by_hand import DEDUP, tell
from benchmarks.sides.headers import SOURCE
from pillarbox.bus.connect import bus_from_url
from pillarbox.bus.message_bus import Capabilities, MessageBus
from pillarbox.bus.outcome import Accepted, PublishOutcome
from pillarbox.cli import event_loop
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.projector.collection import collect_seldom
from pillarbox.projector.config import OutboxProjectorConfig
from pillarbox.projector.observer import Observer
from pillarbox.projector.projector import OutboxProjector

# One setting for throughput, latency, fairness and memory alike: the default one.
CONFIG = OutboxProjectorConfig()


class TimedBus:
    """Pass everything on, and note when each event was acknowledged.

    The notes are two flat lists: a million small objects would have the collector stop the process.
    """

    def __init__(self, bus: MessageBus) -> None:
        self._bus = bus
        self._ids: list[str] = []
        self._times: list[int] = []

    @property
    def acknowledged(self) -> list[tuple[str, int]]:
        """The id of each event and when it was acknowledged."""
        return list(zip(self._ids, self._times, strict=True))

    @property
    def capabilities(self) -> Capabilities:
        """What the bus behind can do."""
        return self._bus.capabilities

    async def start(self) -> Sequence[str]:
        """Connect."""
        return await self._bus.start()

    async def publish(
        self, batch: Sequence[MessageEnvelope], *, one_by_one: bool = False
    ) -> Sequence[PublishOutcome]:
        """Publish, and note the time at which the bus has answered for the whole batch."""
        outcomes = await self._bus.publish(batch, one_by_one=one_by_one)
        now = time.time_ns()
        self._ids.extend(
            envelope.event_id
            for envelope, outcome in zip(batch, outcomes, strict=True)
            if isinstance(outcome, Accepted)
        )
        self._times.extend([now] * (len(self._ids) - len(self._times)))
        return outcomes

    async def apply(self, topics: Sequence[str]) -> Sequence[str]:
        """Create topics."""
        return await self._bus.apply(topics)

    async def close(self) -> None:
        """Disconnect."""
        await self._bus.close()


class Tally(Observer):
    """Count what is settled, from the first claim to the last settlement."""

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self._ready = False
        self.first = self.last = 0.0
        self.sent = 0

    def claiming(self) -> None:
        """Start the clock."""
        self.first = self.first or time.time()

    def settled(self, *, sent: int, failed: int, dead: int, took: timedelta) -> None:
        """Count, and note the time."""
        del took
        assert not failed, "an event failed"
        assert not dead, "an event is dead"
        self.sent += sent
        self.last = time.time()

    def owns(self, shards: int) -> None:
        """Tell the suite once this process has its share of the shards."""
        if shards == self._shards and not self._ready:
            self._ready = True
            tell(ready=True)


def bus_for(url: str) -> MessageBus:
    """Make the bus of an address; Pulsar's may ask for numbered messages."""
    if url.endswith(DEDUP):
        from pillarbox.bus.pulsar import PulsarMessageBus  # noqa: PLC0415 - one client per process

        return PulsarMessageBus(url.removesuffix(DEDUP), dedup=True)
    return bus_from_url(url)


async def run(given: argparse.Namespace) -> None:
    """Publish as asked and tell what was done."""
    timed = TimedBus(bus_for(given.bus))
    tally = Tally(given.shards)
    projector = OutboxProjector(
        message_bus=timed if given.acks else bus_for(given.bus),
        dsn=given.dsn,
        config=CONFIG,
        observer=tally,
        service=SOURCE,
    )
    if given.serve:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, projector.stop)
        await projector.run_forever()
    else:
        await projector.drain()
    if given.acks:
        given.acks.write_text(json.dumps(timed.acknowledged))
    tell(
        events=tally.sent,
        seconds=tally.last - tally.first,
        first=tally.first,
        last=tally.last,
        cpu=time.process_time(),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dsn")
    parser.add_argument("bus")
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--shards", type=int, default=64, help="ready once it owns so many")
    parser.add_argument("--acks", type=Path, help="where to write when each event was acknowledged")
    logging.basicConfig(level=logging.ERROR)
    # As the command `pillarbox projector run` does.
    collect_seldom()
    event_loop.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
