"""Polling to Redis Streams: our projector beside the overlapped loop that one would write by hand.

The server syncs its append-only file before it answers (`appendfsync always`). The reference sends
XADD commands in bulk outside transactions and has one message of a key in flight.
"""

from typing import Final

from benchmarks.backlog import postgres_server
from benchmarks.brokers.redis import RedisStream
from benchmarks.report import Report
from benchmarks.throughput import Comparison, Throughput, make_check_template
from pillarbox.servers import Redis

ROUNDS: Final = 3
EVENTS: Final = 40_000


async def run(report: Report, rounds: int) -> None:
    """Measure each distribution of keys, then two processes beside one."""
    report.packages = ("psycopg", "redis")
    with postgres_server() as postgres, Redis() as server:
        report.servers |= {"PostgreSQL": postgres.version, "Redis": server.version}
        broker = RedisStream(server)
        await Throughput(postgres, broker, make_check_template(postgres)).check_alike()
        comparison = Comparison(report, postgres, broker, report.options.size or EVENTS)
        await comparison.by_keys(rounds)
        await comparison.two_processes(rounds)
