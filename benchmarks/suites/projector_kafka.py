"""Polling to Kafka: our projector beside the overlapped loop that one would write by hand.

The shipped table with all its indexes, rows of 400 bytes, batches of 1,000, the same bytes and
headers on both sides. The reference has no claims, no leases and no fences.
"""

from typing import Final

from benchmarks.backlog import postgres_server
from benchmarks.brokers.kafka import KafkaTopic
from benchmarks.report import Report
from benchmarks.throughput import Comparison, Throughput, make_check_template
from pillarbox.servers import Kafka

ROUNDS: Final = 5
EVENTS: Final = 120_000
_TWO_CORES_ROUNDS: Final = 3
# Deleted topics go at once: each side leaves a hundred megabytes.
_SETTINGS: Final = {"log.segment.delete.delay.ms": 100}


async def run(report: Report, rounds: int) -> None:
    """Measure each distribution of keys, then two processes beside one."""
    report.packages = ("psycopg", "confluent-kafka")
    with postgres_server() as postgres, Kafka(settings=_SETTINGS) as kafka:
        report.servers |= {"PostgreSQL": postgres.version, "Kafka": kafka.version}
        broker = KafkaTopic(kafka)
        await Throughput(postgres, broker, make_check_template(postgres)).check_alike()
        comparison = Comparison(report, postgres, broker, report.options.size or EVENTS)
        await comparison.by_keys(rounds)
        await comparison.two_processes(min(rounds, _TWO_CORES_ROUNDS))
