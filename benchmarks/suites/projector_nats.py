"""Polling to NATS JetStream: our projector beside the overlapped loop that one would write by hand.

The reference uses the client at its best and has one message of a key in flight. On disk the server syncs every
message before it acknowledges; in memory the client is the limit.
"""

from typing import Final

from nats.js.api import StorageType

from benchmarks.backlog import postgres_server
from benchmarks.brokers.nats import NatsStream
from benchmarks.report import Report
from benchmarks.throughput import Comparison, Throughput, make_check_template
from pillarbox.servers import Nats

ROUNDS: Final = 3
EVENTS: Final = {StorageType.MEMORY: 40_000, StorageType.FILE: 15_000}
NAMES: Final = {StorageType.MEMORY: "in memory", StorageType.FILE: "synced to disk"}


async def run(report: Report, rounds: int) -> None:
    """Measure each distribution of keys on both storages, then two processes beside one."""
    report.packages = ("psycopg", "nats-py")
    with postgres_server() as postgres, Nats() as server:
        report.servers |= {"PostgreSQL": postgres.version, "NATS": server.version}
        comparisons = [
            Comparison(
                report,
                postgres,
                NatsStream(server, storage),
                report.options.size or EVENTS[storage],
                name,
            )
            for storage, name in NAMES.items()
        ]
        in_memory = comparisons[0]
        template = make_check_template(postgres)
        await Throughput(postgres, in_memory.broker, template).check_alike()
        for comparison in comparisons:
            await comparison.by_keys(rounds)
        await in_memory.two_processes(rounds)
