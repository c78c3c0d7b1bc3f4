"""Run one projector until SIGTERM, and let it kill itself at a named point.

    python -m tests.faults.projector_process --database URL --bus URL --name p1 --trace FILE \
        --fail-point after-claim:3

A fail point has the form NAME:N or NAME:N:SECONDS: the process kills itself with -9 the Nth time
that it comes there, or so many seconds later. The points are exact: what lies between a statement
and its answer, or between a message and its acknowledgement, is told by the connection and the bus.
The trace has one line for each step and survives the kill.
"""

import argparse
import asyncio
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from psycopg.conninfo import make_conninfo

from pillarbox.bus.outcome import Accepted, PublishOutcome, Unknown
from pillarbox.projector.config import OutboxProjectorConfig
from pillarbox.projector.observer import Observer
from pillarbox.projector.projector import OutboxProjector
from tests.faults.orphan import end_with_parent
from tests.faults.points import POINTS, FailPoint
from tests.faults.trace import Trace
from tests.faults.watched import WatchedBus, WatchedConnection

# The part of its lease that a projector waits for the bus's answer.
_ANSWER_SHARE: Final = 0.7
_BUSES: Final = {
    "amqp": ("rabbitmq", "RabbitMQMessageBus"),
    "kafka": ("kafka", "KafkaMessageBus"),
    "nats": ("nats", "NatsMessageBus"),
    "pulsar": ("pulsar", "PulsarMessageBus"),
    "redis": ("redis", "RedisMessageBus"),
}


class Saboteur(Observer):
    """Trace each step, and kill the victim at the fail point: this process, if no other is named."""

    def __init__(self, trace: Trace, fail_point: FailPoint | None, victim: int) -> None:
        self._trace = trace
        self._victim = victim
        self._fail_point = fail_point
        self._left = 0 if fail_point is None else fail_point.times
        self._open = 0

    def claimed(self, events: int, took: timedelta) -> None:
        if events:
            self._open += events
            self._trace.note("claimed", events=events, took=took.total_seconds())
            self.reach("after-claim")

    def sending(self, topics: Sequence[str]) -> None:
        self._trace.note("sending", events=len(topics))
        self.reach("before-send")

    def answered(
        self, topics: Sequence[str], outcomes: Sequence[PublishOutcome], took: timedelta
    ) -> None:
        accepted = sum(isinstance(outcome, Accepted) for outcome in outcomes)
        others = sorted({type(one).__name__ for one in outcomes if not isinstance(one, Accepted)})
        self._trace.note(
            "answered",
            accepted=accepted,
            unknown=sum(isinstance(outcome, Unknown) for outcome in outcomes),
            of=len(topics),
            others=others,
            took=took.total_seconds(),
        )
        if accepted:
            self.reach("after-ack")

    def settling(self, events: int) -> None:
        self._trace.note("settling", events=events)

    def settled(self, *, sent: int, failed: int, dead: int, took: timedelta) -> None:
        # A fenced settlement counts events that were let go of before.
        self._open = max(0, self._open - sent - failed - dead)
        self._trace.note("settled", sent=sent, failed=failed, dead=dead, took=took.total_seconds())

    def owns(self, shards: int) -> None:
        self._trace.note("owns", shards=shards)

    def fenced(self, events: int) -> None:
        self._open = 0
        self._trace.note("fenced", events=events)

    def order_broken(self, tenant_id: str, key: str) -> None:
        self._trace.note("order-broken", tenant=tenant_id, key=key)

    def poll_failed(self, error: Exception) -> None:
        self._trace.note("poll-failed", error=f"{type(error).__name__}: {error}"[:200])

    def reach(self, name: str) -> None:
        """Come to a point; to die without events in hand would show nothing."""
        point = self._fail_point
        if point is None or point.name != name or self._left == 0:
            return
        if self._victim == os.getpid() and not self._open:
            return
        self._left -= 1
        if self._left == 0 and point.delay:
            asyncio.get_running_loop().call_later(point.delay, self._end)
        elif self._left == 0:
            self._end()

    def _end(self) -> None:
        point = self._fail_point and self._fail_point.name
        self._trace.note("killed", point=point, events=self._open)
        os.kill(self._victim, signal.SIGKILL)


def bus_of(url: str, publish_timeout: timedelta, **options: Any) -> Any:
    """Make a bus that answers within the short leases of the rig."""
    scheme, _, servers = url.partition("://")
    package, name = _BUSES[scheme]
    # Only the client that is needed: a drill starts many of these processes.
    bus = getattr(importlib.import_module(f"pillarbox.bus.{package}"), name)
    return bus(servers if scheme == "kafka" else url, publish_timeout=publish_timeout, **options)


async def run(options: argparse.Namespace, trace: Trace) -> None:
    """Run a projector until SIGTERM."""
    fail_point = FailPoint.parse(options.fail_point) if options.fail_point else None
    # The audit in the database knows a projector by this setting of its connections.
    settings = f"-c rig.projector={options.name}"
    if not options.hasty:
        # What has to be durable must say so itself, whatever the database's default is. A hasty one would
        # lose numbers that it has in hand, and pass over the events that get them next.
        settings += " -c synchronous_commit=off"
    dsn = make_conninfo(options.database, options=settings)
    saboteur = Saboteur(trace, fail_point, options.victim)
    bus = bus_of(
        options.bus,
        timedelta(seconds=_ANSWER_SHARE * options.lease),
        **({"partitions": options.partitions} if options.partitions else {}),
    )
    if fail_point is not None and fail_point.name == "after-send":
        bus = WatchedBus(bus, options.bus, saboteur.reach)

    async def connect() -> WatchedConnection:
        connection = await WatchedConnection.connect(dsn, autocommit=True)
        connection.reach = saboteur.reach
        connection.durable, connection.pause = not options.hasty, options.pause
        return connection

    projector = OutboxProjector(
        message_bus=bus,
        connect=connect,
        config=OutboxProjectorConfig(
            lease=options.lease,
            batch_size=options.batch,
            sleep_busy=options.sleep_busy,
            sleep_idle=options.sleep_idle,
            stop_timeout=options.stop_timeout,
        ),
        observer=saboteur,
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, projector.stop)
    end_with_parent()
    trace.note("started", pid=os.getpid())
    await projector.run_forever()
    trace.note("stopped")


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.projector_process")
    parser.add_argument("--database", required=True)
    parser.add_argument("--bus", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--trace", required=True, type=Path)
    parser.add_argument("--fail-point", help=f"NAME:N[:SECONDS], one of {', '.join(POINTS)}")
    parser.add_argument("--victim", type=int, default=os.getpid(), help="whom to kill instead")
    parser.add_argument("--hasty", type=int, default=0, help="1: claims do not wait for the disk")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds before each read")
    parser.add_argument("--partitions", type=int, help="spread each topic over so many")
    parser.add_argument("--lease", type=float, default=3.0)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--sleep-busy", type=float, default=0.02)
    parser.add_argument("--sleep-idle", type=float, default=0.5)
    parser.add_argument("--stop-timeout", type=float, default=10.0)
    options = parser.parse_args(arguments)
    with Trace.opened(options.trace, options.name) as trace:
        asyncio.run(run(options, trace))
    return 0


if __name__ == "__main__":
    sys.exit(main())
