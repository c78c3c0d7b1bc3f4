"""A quiet tenant beside one that has a million events waiting, both in one shard.

The quiet tenant's writer commits at a steady rate; its events' way from commit to acknowledgement
is compared with the same when nobody else has anything to send.
"""

import itertools
import tempfile
from pathlib import Path
from typing import Final

from benchmarks.arrival import Arrival, arrival
from benchmarks.backlog import Backlog, copy_of, create_template, postgres_server, scalar
from benchmarks.brokers.kafka import KafkaTopic
from benchmarks.processes import run_side, running_side
from benchmarks.report import Report, Row, at_most
from pillarbox.event.shard import place_of, shard_of
from pillarbox.servers import Kafka, Postgres

ROUNDS: Final = 3
WAITING: Final = 1_000_000
SHARDS: Final = 64
KEYS: Final = 200
SHARD: Final = 7
RATE: Final = 100
SECONDS: Final = 10
_STILL_WAITING: Final = (
    "SELECT EXISTS (SELECT FROM outbox WHERE (shard_hash & 63) = %s AND tenant_id = 'noisy' "
    "AND status = 'NEW' AND set_aside IS NULL)"
)


async def run(report: Report, rounds: int) -> None:
    """Measure the quiet tenant alone and beside the noisy one, in turns."""
    report.packages = ("psycopg", "confluent-kafka")
    waiting = report.options.size or WAITING
    with postgres_server() as postgres, Kafka() as kafka:
        report.servers |= {"PostgreSQL": postgres.version, "Kafka": kafka.version}
        broker = KafkaTopic(kafka)
        create_template(postgres, "alone")
        keys = ", ".join(f"'{key}'" for key in _keys("noisy", KEYS))
        noisy = Backlog(waiting, f"(ARRAY[{keys}])[1 + n % {KEYS}]", tenant="noisy")
        create_template(postgres, "beside", noisy)
        await broker.warm_up()
        alone: list[Arrival] = []
        beside: list[Arrival] = []
        for number in range(rounds + 1):
            for template, found in (("alone", alone), ("beside", beside)):
                seen = await _round(postgres, broker, template)
                found.extend([seen] if number else [])
        name = f"beside {waiting:,} waiting in its shard"
        for share, bar in (("p99", at_most(2)), ("p50", None)):
            ours = [float(getattr(seen, share)) for seen in beside]
            theirs = [float(getattr(seen, share)) for seen in alone]
            report.add(Row(f"{name}, {share}", "ms", ours, "alone", theirs, bar))


async def _round(postgres: Postgres, broker: KafkaTopic, template: str) -> Arrival:
    (key,) = _keys("quiet", 1)
    options = ("--tenant", "quiet", "--key", key, "--rate", RATE)
    with copy_of(postgres, template) as url, tempfile.TemporaryDirectory() as folder:
        commits, acks = Path(folder, "commits"), Path(folder, "acks")
        async with running_side("projector", url, broker.url, "--serve", "--acks", acks) as child:
            await run_side("writer", url, commits, *options, "--seconds", 1)
            await run_side("writer", url, commits, *options, "--seconds", SECONDS)
            if template == "beside":
                assert scalar(url, _STILL_WAITING, SHARD), "the backlog ended too early"
            await child.stop()
        return arrival(commits, acks)


def _keys(tenant: str, count: int) -> list[str]:
    """Return keys of a tenant that fall into the one shard."""
    names = (f"{tenant}-{number}" for number in itertools.count())
    fitting = (
        name for name in names if shard_of(place_of(tenant, name).shard_hash, SHARDS) == SHARD
    )
    return list(itertools.islice(fitting, count))
