"""Polling to RabbitMQ: our projector beside the overlapped loop that one would write by hand.

A quorum queue, which syncs before it confirms. Both sides send persistent, mandatory messages and do
not wait for one confirm before the next message; the reference has one message of a key in flight.
"""

from typing import Final

from benchmarks.backlog import postgres_server
from benchmarks.brokers.rabbitmq import RabbitMqQueue
from benchmarks.report import Report
from benchmarks.throughput import Comparison, Throughput, make_check_template
from pillarbox.servers import RabbitMq

ROUNDS: Final = 3
EVENTS: Final = 40_000


async def run(report: Report, rounds: int) -> None:
    """Measure each distribution of keys, then two processes beside one."""
    report.packages = ("psycopg", "aiormq")
    with postgres_server() as postgres, RabbitMq() as server:
        report.servers |= {"PostgreSQL": postgres.version, "RabbitMQ": server.version}
        broker = RabbitMqQueue(server)
        await Throughput(postgres, broker, make_check_template(postgres)).check_alike()
        comparison = Comparison(report, postgres, broker, report.options.size or EVENTS)
        await comparison.by_keys(rounds)
        await comparison.two_processes(rounds)
