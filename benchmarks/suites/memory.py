"""The resident memory of a projector process while it empties a backlog of a million events."""

import asyncio
from statistics import median
from typing import Final

from benchmarks.backlog import EVEN, Backlog, copy_of, create_template, postgres_server
from benchmarks.brokers.kafka import KafkaTopic
from benchmarks.processes import Child, running_side
from benchmarks.report import Report, Row, at_most, within
from benchmarks.throughput import nothing_waits
from pillarbox.servers import Kafka, Postgres

ROUNDS: Final = 2
WAITING: Final = 1_000_000
PARTS: Final = 5
LOOKS: Final = 20
_LOOK_SECONDS: Final = 0.05


async def run(report: Report, rounds: int) -> None:
    """Watch a large and a small backlog being emptied."""
    report.packages = ("psycopg", "confluent-kafka")
    large = report.options.size or WAITING
    small = large // 10
    with postgres_server() as postgres, Kafka() as kafka:
        report.servers |= {"PostgreSQL": postgres.version, "Kafka": kafka.version}
        broker = KafkaTopic(kafka)
        create_template(postgres, "large", Backlog(large, EVEN))
        create_template(postgres, "small", Backlog(small, EVEN))
        seen = [await _watched(postgres, broker, "large") for _ in range(rounds)]
        few = [await _watched(postgres, broker, "small") for _ in range(rounds)]
    name, peaks = f"backlog of {large:,}", [max(each) for each in seen]
    report.add(within(f"{name}, peak", "MB", peaks, 150))
    early, late = [_part(each, 1) for each in seen], [_part(each, PARTS - 1) for each in seen]
    report.add(Row(f"{name}, last fifth", "MB", late, "second fifth", early, at_most(1.1)))
    reference = f"backlog of {small:,}, peak"
    report.add(
        Row(f"{name}, peak", "MB", peaks, reference, [max(each) for each in few], at_most(1.1))
    )


async def _watched(postgres: Postgres, broker: KafkaTopic, template: str) -> list[float]:
    await broker.start_afresh()
    with copy_of(postgres, template) as url:
        async with running_side("projector", url, broker.url, "--serve") as child:
            watch = asyncio.create_task(_watch(child))
            await nothing_waits(url)
            watch.cancel()
            await asyncio.wait([watch])
            seen = watch.result()
            assert len(seen) >= LOOKS, f"only {len(seen)} looks at the memory: too few"
            return seen


async def _watch(child: Child) -> list[float]:
    seen = [child.memory]
    try:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            seen.append(child.memory)
    except asyncio.CancelledError:
        return seen


def _part(seen: list[float], number: int) -> float:
    """Return the median of one of the equal parts of the time."""
    length = max(1, len(seen) // PARTS)
    return median(seen[number * length : (number + 1) * length])
