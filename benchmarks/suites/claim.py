"""What one claim costs, its commit included, on 64 shards: it must not grow with what lies about.

Each state has a database of its own, beside a nearly empty one on the same server; claims of 1,000
small rows are timed on both in turns. Where the state's own rows cannot be claimed, each claim gets
a fresh batch, as on the nearly empty side.
"""

import asyncio
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from benchmarks.backlog import Backlog, connected, create_template, postgres_server
from benchmarks.claims import BATCH, NOTE, Claimant, claimant
from benchmarks.measure import alternate
from benchmarks.report import Report, Row, at_most
from pillarbox.servers import Postgres

ROUNDS: Final = 5
BLOCKS: Final = 4
CLAIMS: Final = 5
MANY: Final = 10_000_000
NEARLY_EMPTY: Final = "nearly empty"

_BLOCK_KEYS: Final = """
INSERT INTO outbox_blocked_key (tenant_id, key, event_id, seq, topic)
SELECT tenant_id, key, (array_agg(id ORDER BY seq))[1], min(seq) - 1, %s
FROM outbox WHERE set_aside = 'key' GROUP BY tenant_id, key
"""
_PAUSE: Final = "INSERT INTO outbox_control (tenant_id, topic, paused) VALUES ('paused', '*', 1)"


@dataclass(frozen=True, slots=True)
class State:
    """A state of the outbox: rows that lie there, and what else is said of them."""

    name: str
    backlog: Backlog | None = None
    statements: tuple[tuple[str, tuple[str | None, ...]], ...] = ()
    waits: bool = False
    passed_over: Collection[str] = ()
    settled_under_snapshot: int = 0


def states(many: int, hold: float) -> list[State]:
    """Return the states to measure, scaled to the largest of them."""
    held = f" in {hold / 60:g} minutes" if hold else ""
    small = partial(Backlog, note=NOTE, per_transaction=BATCH)
    some, keys = many // 10, many // 100
    blocked = ((_BLOCK_KEYS, (None,)),)
    aside = partial(small, set_aside="key")
    return [
        State(f"{many:,} pending", small(many), waits=True),
        State(f"{many:,} SENT kept", small(many, status="SENT")),
        State(f"{some:,} rows of a blocked key", aside(some, "'blocked'"), blocked),
        State(
            f"a paused tenant with {some:,} rows",
            small(some, tenant="paused"),
            ((_PAUSE, ()),),
            passed_over={"paused"},
        ),
        State(
            f"a topic with an open breaker and {some:,} rows",
            aside(some, "'down-' || n % 5000", topic="down"),
            ((_BLOCK_KEYS, ("down",)),),
        ),
        State(f"{keys:,} blocked keys", aside(keys, "'blocked-' || n"), blocked),
        State(
            f"an old snapshot, {some:,} rows settled under it{held}", settled_under_snapshot=some
        ),
    ]


async def run(report: Report, rounds: int) -> None:
    """Measure each state beside a nearly empty outbox."""
    report.packages = ("psycopg",)
    with postgres_server() as postgres:
        report.servers["PostgreSQL"] = postgres.version
        for state in states(report.options.size or MANY, report.options.hold):
            if report.wants(state.name):
                url = await asyncio.to_thread(_prepared, postgres, "state", state)
                # Made anew for each: what was claimed there for one state would lie there in the next.
                empty = await asyncio.to_thread(create_template, postgres, "nearly_empty")
                await _measure(report, rounds, state, url, empty)
                for name in ("state", "nearly_empty"):
                    postgres.drop_database(name)


def _prepared(postgres: Postgres, name: str, state: State) -> str:
    url = create_template(postgres, name, *([state.backlog] if state.backlog else []))
    with connected(url) as connection:
        for statement, values in state.statements:
            connection.execute(statement, values)
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")
    return url


async def _measure(report: Report, rounds: int, state: State, url: str, empty: str) -> None:
    """Alternate between the state and the nearly empty outbox."""
    async with (
        claimant(url, waits=state.waits, passed_over=state.passed_over) as ours,
        claimant(empty) as theirs,
    ):
        theirs.batch = ours.batch
        with _old_snapshot(url, held=bool(state.settled_under_snapshot)):
            await _settle_under_snapshot(ours, state.settled_under_snapshot, report.options.hold)
            found = await alternate(
                {
                    state.name: partial(ours.claims, CLAIMS),
                    NEARLY_EMPTY: partial(theirs.claims, CLAIMS),
                },
                rounds=rounds,
                blocks=BLOCKS,
                before_round=_nothing,
            )
    values = {name: [1_000 * value for value in seconds] for name, seconds in found.items()}
    report.add(
        Row(state.name, "ms", values[state.name], NEARLY_EMPTY, values[NEARLY_EMPTY], at_most(1.5))
    )


@contextmanager
def _old_snapshot(url: str, *, held: bool) -> Iterator[None]:
    """Keep a reader's snapshot open, so that no dead row can be removed."""
    if not held:
        yield
        return
    with connected(url) as reader:
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM outbox")
        yield
        reader.execute("COMMIT")


async def _settle_under_snapshot(ours: Claimant, rows: int, seconds: float) -> None:
    """Claim and settle at least so many rows, for at least so long."""
    if not rows:
        return
    end = time.monotonic() + seconds
    for _ in range(rows // BATCH):
        await ours.claim()
    while time.monotonic() < end:
        await ours.claim()


async def _nothing() -> None:
    """Do nothing: every claim brings its own rows."""
