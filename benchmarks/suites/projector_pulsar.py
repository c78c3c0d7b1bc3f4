"""Polling to Pulsar: our projector beside the overlapped loop that one would write by hand.

One bookie, which syncs its journal before it acknowledges. With dedup both sides number their messages
and send no batches, since Pulsar knows only the first number of a batch. The reference has one
message of a key in flight.
"""

from typing import Final

from benchmarks.backlog import postgres_server
from benchmarks.brokers.pulsar import PulsarTopic
from benchmarks.report import Report
from benchmarks.throughput import Comparison, Throughput, make_check_template
from pillarbox.servers import Pulsar

ROUNDS: Final = 3
EVENTS: Final = 40_000
NAMES: Final = {False: "batched", True: "with dedup"}


async def run(report: Report, rounds: int) -> None:
    """Measure each distribution of keys in both modes, then two processes beside one."""
    report.packages = ("psycopg", "pulsar-client")
    with postgres_server() as postgres, Pulsar() as server:
        report.servers |= {"PostgreSQL": postgres.version, "Pulsar": server.version}
        events = report.options.size or EVENTS
        comparisons = [
            Comparison(report, postgres, PulsarTopic(server, dedup=dedup), events, name)
            for dedup, name in NAMES.items()
        ]
        await PulsarTopic(server, dedup=False).warm_up()
        template = make_check_template(postgres)
        for comparison in comparisons:
            await Throughput(postgres, comparison.broker, template).check_alike()
        for comparison in comparisons:
            await comparison.by_keys(rounds)
        await comparisons[0].two_processes(rounds)
