"""Polling to Kafka: our projector beside the overlapped loop that one would write by hand.

The shipped table with all its indexes, rows of 400 bytes, batches of 1,000, the same bytes and
headers on both sides. The reference has no claims, no leases and no fences.
"""

from typing import Final

from benchmarks.backlog import DISTRIBUTIONS, EVEN, Backlog, create_template, postgres_server
from benchmarks.brokers import KafkaTopic
from benchmarks.report import Report, Row, at_least
from benchmarks.throughput import (
    BY_HAND,
    ONE_PROCESS,
    Throughput,
    make_check_template,
    stage,
)
from pillarbox.servers import Kafka

ROUNDS: Final = 5
EVENTS: Final = 120_000
UNIT: Final = "events/s"
TWO_PROCESSES: Final = "two processes, 5,000 even keys"
# Deleted topics go at once: each side leaves a hundred megabytes.
_SETTINGS: Final = {"log.segment.delete.delay.ms": 100}


async def run(report: Report, rounds: int) -> None:
    """Measure each distribution of keys, then two processes beside one."""
    report.packages = ("psycopg", "confluent-kafka")
    events = report.options.size or EVENTS
    with postgres_server() as postgres, Kafka(settings=_SETTINGS) as kafka:
        report.servers |= {"PostgreSQL": postgres.version, "Kafka": kafka.version}
        broker = KafkaTopic(kafka)
        await Throughput(postgres, broker, make_check_template(postgres)).check_alike()
        for number, (measure, key) in enumerate(DISTRIBUTIONS.items()):
            if report.wants(measure):
                name = f"keys_{number}"
                create_template(postgres, name, Backlog(events, key))
                work = Throughput(postgres, broker, name)
                ours, theirs = await work.beside_the_reference(rounds)
                report.add(Row(measure, UNIT, ours, BY_HAND, theirs, at_least(0.8)))
        if report.wants(TWO_PROCESSES):
            stage(postgres, "staged", Backlog(events, EVEN))
            two, one = await Throughput(postgres, broker, "staged").on_two_cores(min(rounds, 3))
            report.add(Row(TWO_PROCESSES, UNIT, two, ONE_PROCESS, one))
