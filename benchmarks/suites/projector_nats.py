"""Polling to NATS JetStream: our projector beside the overlapped loop that one would write by hand.

The reference sends in bulk and has one message of a key in flight. On disk the server syncs every
message before it acknowledges; in memory the client is the limit.
"""

from typing import Final

from nats.js.api import StorageType

from benchmarks.backlog import DISTRIBUTIONS, EVEN, Backlog, create_template, postgres_server
from benchmarks.brokers import NatsStream
from benchmarks.report import Report, Row, at_least
from benchmarks.throughput import (
    BY_HAND,
    ONE_PROCESS,
    Throughput,
    make_check_template,
    stage,
)
from pillarbox.servers import Nats

ROUNDS: Final = 3
EVENTS: Final = {StorageType.MEMORY: 40_000, StorageType.FILE: 15_000}
NAMES: Final = {StorageType.MEMORY: "in memory", StorageType.FILE: "synced to disk"}
UNIT: Final = "events/s"
TWO_PROCESSES: Final = "two processes, in memory, 5,000 even keys"


async def run(report: Report, rounds: int) -> None:
    """Measure each distribution of keys on both storages, then two processes beside one."""
    report.packages = ("psycopg", "nats-py")
    with postgres_server() as postgres, Nats() as server:
        report.servers |= {"PostgreSQL": postgres.version, "NATS": server.version}
        memory = NatsStream(server, StorageType.MEMORY)
        await Throughput(postgres, memory, make_check_template(postgres)).check_alike()
        for storage, name in NAMES.items():
            events = report.options.size or EVENTS[storage]
            for number, (keys, key) in enumerate(DISTRIBUTIONS.items()):
                measure, template = f"{name}, {keys}", f"{storage.value}_{number}"
                if report.wants(measure):
                    create_template(postgres, template, Backlog(events, key))
                    work = Throughput(postgres, NatsStream(server, storage), template)
                    ours, theirs = await work.beside_the_reference(rounds)
                    report.add(Row(measure, UNIT, ours, BY_HAND, theirs, at_least(0.8)))
        if report.wants(TWO_PROCESSES):
            events = report.options.size or EVENTS[StorageType.MEMORY]
            stage(postgres, "staged", Backlog(events, EVEN))
            two, one = await Throughput(postgres, memory, "staged").on_two_cores(rounds)
            report.add(Row(TWO_PROCESSES, UNIT, two, ONE_PROCESS, one))
