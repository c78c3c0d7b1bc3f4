"""Emptying an outbox into a broker: ours beside the loop written by hand, and on two cores."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

from psycopg import sql

from benchmarks.backlog import DISTRIBUTIONS, EVEN, Backlog, connected, copy_of, create_template
from benchmarks.brokers.broker import Broker
from benchmarks.measure import alternate
from benchmarks.processes import run_side, running_side
from benchmarks.report import Report, Row, at_least
from pillarbox.outbox.wakeup import CHANNEL
from pillarbox.servers import Postgres

OURS: Final = "ours"
BY_HAND: Final = "overlapped loop by hand"
ONE_PROCESS: Final = "one process"
SHARDS: Final = 64
UNIT: Final = "events/s"
_BAR: Final = at_least(0.8)
_CHECKED: Final = 2_000
_LOOK_SECONDS: Final = 0.2
_LIMIT: Final = 300.0

_STAGE: Final = (
    "CREATE TABLE staged AS SELECT * FROM outbox",
    "ALTER TABLE staged DROP COLUMN txid, DROP COLUMN seq",
    "TRUNCATE outbox",
    "VACUUM ANALYZE staged",
)
_COLUMNS: Final = """
SELECT attname FROM pg_attribute
WHERE attrelid = 'staged'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
_WAITING: Final = "SELECT FROM outbox WHERE status = 'NEW' AND set_aside IS NULL LIMIT 1"


@dataclass(frozen=True, slots=True)
class Throughput:
    """Empty copies of a template into a broker; a round's values are events per second."""

    postgres: Postgres
    broker: Broker
    template: str

    async def beside_the_reference(self, rounds: int) -> tuple[list[float], list[float]]:
        """Measure ours and the loop by hand."""

        async def ours() -> list[float]:
            return await self._drained("projector", self.broker.url)

        async def by_hand() -> list[float]:
            return await self._drained(self.broker.side, self.broker.address)

        sides = {OURS: ours, BY_HAND: by_hand}
        found = await alternate(sides, rounds=rounds, blocks=1, before_round=_nothing)
        return _rates(found[OURS]), _rates(found[BY_HAND])

    async def on_two_cores(self, rounds: int) -> tuple[list[float], list[float]]:
        """Measure two of our processes and one, on a template made by `stage`."""

        async def two() -> list[float]:
            return await self._shared_by(2)

        async def one() -> list[float]:
            return await self._shared_by(1)

        sides = {OURS: two, ONE_PROCESS: one}
        found = await alternate(sides, rounds=rounds, blocks=1, before_round=_nothing)
        return _rates(found[OURS]), _rates(found[ONE_PROCESS])

    async def check_alike(self) -> None:
        """Make sure that ours and the reference send the same keys, bodies and headers."""
        await self._drained("projector", self.broker.url)
        ours = await self.broker.messages(_CHECKED)
        await self._drained(self.broker.side, self.broker.address)
        theirs = await self.broker.messages(_CHECKED)
        if ours != theirs:
            different = next(iter(ours - theirs), None), next(iter(theirs - ours), None)
            raise AssertionError(f"the sides send different messages: {different}")

    async def _drained(self, side: str, address: str) -> list[float]:
        await self.broker.start_afresh()
        with copy_of(self.postgres, self.template) as url:
            found = await run_side(side, url, address)
            _check_nothing_waits(url)
        return [found["seconds"] / found["events"]]

    async def _shared_by(self, processes: int) -> list[float]:
        """Return seconds per event; all rows appear once every process has its shards."""
        await self.broker.start_afresh()
        arguments = ("--serve", "--shards", SHARDS // processes)
        with copy_of(self.postgres, self.template) as url:
            async with AsyncExitStack() as stack:
                starting = [
                    stack.enter_async_context(
                        running_side("projector", url, self.broker.url, *arguments)
                    )
                    for _ in range(processes)
                ]
                children = await asyncio.gather(*starting)
                events, start = _release(url)
                await nothing_waits(url)
                await asyncio.gather(*(child.stop() for child in children))
        assert sum(child.said["events"] for child in children) >= events
        return [(max(child.said["last"] for child in children) - start) / events]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The rows of one broker in one mode, whose name stands before each measure."""

    report: Report
    postgres: Postgres
    broker: Broker
    events: int
    mode: str = ""

    async def by_keys(self, rounds: int) -> None:
        """Add a row for each distribution of keys: ours beside the loop by hand."""
        for number, (keys, key) in enumerate(DISTRIBUTIONS.items()):
            measure = self._named(keys)
            if self.report.wants(measure):
                template = f"{self.mode}_{number}".replace(" ", "_")
                create_template(self.postgres, template, Backlog(self.events, key))
                work = Throughput(self.postgres, self.broker, template)
                ours, theirs = await work.beside_the_reference(rounds)
                self.report.add(Row(measure, UNIT, ours, BY_HAND, theirs, _BAR))

    async def two_processes(self, rounds: int) -> None:
        """Add a row for two processes beside one."""
        measure = f"two processes, {self._named('5,000 even keys')}"
        if self.report.wants(measure):
            stage(self.postgres, "staged", Backlog(self.events, EVEN))
            work = Throughput(self.postgres, self.broker, "staged")
            two, one = await work.on_two_cores(rounds)
            self.report.add(Row(measure, UNIT, two, ONE_PROCESS, one))

    def _named(self, keys: str) -> str:
        return f"{self.mode}, {keys}" if self.mode else keys


def make_check_template(postgres: Postgres) -> str:
    """Make the few rows on which both sides are compared; return the template's name."""
    create_template(postgres, "alike", Backlog(_CHECKED))
    return "alike"


def stage(postgres: Postgres, name: str, backlog: Backlog) -> None:
    """Make a template whose outbox is empty, with all rows ready in a table beside it."""
    with connected(create_template(postgres, name, backlog)) as connection:
        for statement in _STAGE:
            connection.execute(statement)


def _release(url: str) -> tuple[int, float]:
    """Put the staged rows into the outbox in one commit; return their number and its time."""
    with connected(url) as connection:
        columns = sql.SQL(", ").join(
            sql.Identifier(name) for (name,) in connection.execute(_COLUMNS)
        )
        statement = sql.SQL("INSERT INTO outbox ({0}) SELECT {0} FROM staged")
        with connection.transaction():
            events = connection.execute(statement.format(columns)).rowcount
        start = time.time()
        connection.execute(sql.SQL("NOTIFY {}").format(sql.Identifier(CHANNEL)))
    return events, start


async def nothing_waits(url: str) -> None:
    """Wait until no row is left to be sent."""
    with connected(url) as connection:
        async with asyncio.timeout(_LIMIT):
            while connection.execute(_WAITING).rowcount:  # noqa: ASYNC110 - a server, not a task
                await asyncio.sleep(_LOOK_SECONDS)


def _check_nothing_waits(url: str) -> None:
    with connected(url) as connection:
        assert not connection.execute(_WAITING).rowcount, "a side left events behind"


def _rates(seconds: Sequence[float]) -> list[float]:
    return [1 / value for value in seconds]


async def _nothing() -> None:
    """Do nothing: each side starts on a copy of its own."""
