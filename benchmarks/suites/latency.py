"""From commit to the broker's acknowledgement, with wake-ups from another process.

Kafka, and the projector's settings of the throughput suites. The clock starts when the writer's
commit has returned, and stops when the bus has answered for the event's batch. Broker, projector and
writer are warm, as those that have run for a while.
"""

import asyncio
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.arrival import LIMITS, Arrival, arrival
from benchmarks.backlog import copy_of, create_template, postgres_server
from benchmarks.brokers.kafka import KafkaTopic
from benchmarks.processes import run_side, running_side
from benchmarks.report import Histogram, Report, Row, at_least, within
from pillarbox.servers import Kafka, Postgres

ROUNDS: Final = 3
SECONDS: Final = {10: 20.0, 1_000: 10.0}
# One writer process cannot make 1,000 transactions a second beside the servers on two cores.
PER_TRANSACTION: Final = {10: 1, 1_000: 5}
IDLE_SECONDS: Final = 20.0
_WARM_UP_SECONDS: Final = 2.0
_SETTLE_SECONDS: Final = 3.0


class Found(NamedTuple):
    """What one round found."""

    arrival: Arrival
    cores: float
    written: float


async def run(report: Report, rounds: int) -> None:
    """Measure both rates, then a projector that has nothing to do."""
    report.packages = ("psycopg", "confluent-kafka")
    with postgres_server() as postgres, Kafka() as kafka:
        report.servers |= {"PostgreSQL": postgres.version, "Kafka": kafka.version}
        broker = KafkaTopic(kafka)
        create_template(postgres, "empty")
        await broker.warm_up()
        for rate in SECONDS:
            measure = f"{rate:,} events/s"
            if report.wants(measure):
                found = [await _round(postgres, broker, rate) for _ in range(rounds + 1)][1:]
                waits = [each.arrival for each in found]
                report.add(within(f"{measure}, p50", "ms", [each.p50 for each in waits], 4))
                report.add(within(f"{measure}, p99", "ms", [each.p99 for each in waits], 15))
                shares = [each.shares for each in waits]
                report.add_histogram(Histogram.of(measure, "ms", LIMITS, shares))
                report.add(within(f"{measure}, CPU", "cores", [each.cores for each in found], 0.3))
                written = [each.written for each in found]
                asked = [float(rate)] * len(found)
                # A writer that lags behind would flatter the rest: then the suite fails.
                report.add(
                    Row(f"{measure}, written", "events/s", written, "asked", asked, at_least(0.95))
                )
        if report.wants("idle"):
            idle = [await _idle(postgres, broker) for _ in range(rounds)]
            report.add(within("idle, CPU", "cores", idle, 0.01))


async def _round(postgres: Postgres, broker: KafkaTopic, rate: int) -> Found:
    with copy_of(postgres, "empty") as url, tempfile.TemporaryDirectory() as folder:
        commits, acks = Path(folder, "commits"), Path(folder, "acks")
        async with running_side("projector", url, broker.url, "--serve", "--acks", acks) as child:
            # The first events open connections and make producers, here and in the writer.
            options = ("--rate", rate, "--per-transaction", PER_TRANSACTION[rate])
            times = ("--warm-up", _WARM_UP_SECONDS, "--seconds", SECONDS[rate])
            used = child.cpu_seconds
            said = await run_side("writer", url, commits, *options, *times)
            await asyncio.sleep(_SETTLE_SECONDS)
            used = child.cpu_seconds - used
            await child.stop()
        written = said["events"] / said["seconds"]
        cores = used / (said["seconds"] + _WARM_UP_SECONDS)
        return Found(arrival(commits, acks), cores, written)


async def _idle(postgres: Postgres, broker: KafkaTopic) -> float:
    with copy_of(postgres, "empty") as url:
        async with running_side("projector", url, broker.url, "--serve") as child:
            await asyncio.sleep(_SETTLE_SECONDS)
            used = child.cpu_seconds
            await asyncio.sleep(IDLE_SECONDS)
            return (child.cpu_seconds - used) / IDLE_SECONDS
