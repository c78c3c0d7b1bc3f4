"""A bank: a broker, a database, publishers and consumer processes, and what they leave behind."""

import signal
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psycopg
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from pillarbox.database import sync_url
from pillarbox.schema import apply
from tests.faults.consumers.checker import Report, check
from tests.faults.consumers.grounds import Ground
from tests.faults.consumers.history import Place, calls_of, lines_of, read_history
from tests.faults.process import Process
from tests.support.processes import until

LIMIT: Final = 120.0
_PACKAGE: Final = "tests.faults.consumers"
_SHOWN: Final = 5


def make_tables(database: str, tables: str) -> None:
    """Make our tables and those of a service."""
    engine = create_engine(sync_url(database), poolclass=NullPool)
    with engine.begin() as connection:
        apply(connection)
    engine.dispose()
    with psycopg.connect(database) as connection:
        connection.execute((Path(__file__).parent / tables).read_bytes())


@dataclass(slots=True)
class Crew:
    """The processes of a rig, and a connection to a database to see what they do."""

    database: str
    folder: Path
    processes: list[Process] = field(default_factory=list)
    _connection: psycopg.Connection | None = None

    def start(self, name: str, module: str, /, **options: Any) -> Process:
        """Run a module's main function with these options of a command line."""
        said = {option.replace("_", "-"): value for option, value in options.items()}
        words = [f"--{option}={value}" for option, value in said.items()]
        started = Process.start(name, module, words, self.folder)
        self.processes.append(started)
        return started

    def ask(self, query: str, *values: object) -> Any:
        """Ask the database for one value, over a new connection when the old one is lost."""
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self.database, autocommit=True, connect_timeout=5)
        try:
            row = self._connection.execute(query.encode(), values).fetchone()
        except psycopg.OperationalError:
            self._connection.close()
            return self.ask(query, *values)
        return None if row is None else row[0]

    def until(self, condition: Callable[[], bool], what: str, seconds: float = LIMIT) -> None:
        """Wait for a condition; fail with what the latest processes said."""
        try:
            until(condition, what, seconds)
        except AssertionError as error:
            latest = [process.said() for process in self.processes[-_SHOWN:]]
            raise AssertionError("\n\n".join([str(error), *latest])) from None

    def close(self) -> None:
        """End every process."""
        if self._connection is not None:
            self._connection.close()
        for process in self.processes:
            process.signal(signal.SIGKILL)
            process.wait()


def end_gently(processes: Sequence[Process], seconds: float = LIMIT) -> None:
    """Tell processes to stop; each must end by itself."""
    for process in processes:
        process.signal(signal.SIGTERM)
    for process in processes:
        assert process.wait(seconds) == 0, process.said()


@dataclass(slots=True)
class Bank:
    """A topic and a database of its own, with everything that runs on them."""

    ground: Ground
    topic: str
    crew: Crew
    seed: int
    consumers: Sequence[str]
    options: dict[str, Any] = field(default_factory=dict)
    members: list[Process] = field(default_factory=list)
    publishers: list[Process] = field(default_factory=list)

    @property
    def journal(self) -> Path:
        return self.crew.folder / "journal.jsonl"

    def start_member(self, fail_point: str | None = None, **options: Any) -> Process:
        """Run all consumers in a process of their own."""
        name = f"m{len(self.members)}"
        said = {**self._reached, **self.options, **options}
        if fail_point is not None:
            said["fail-point"] = fail_point
        member = self.crew.start(
            name,
            f"{_PACKAGE}.member_process",
            database=self.crew.database,
            name=name,
            trace=self.crew.folder / f"{name}.jsonl",
            consumers=",".join(self.consumers),
            **said,
        )
        self.members.append(member)
        return member

    def start_publisher(self, **options: Any) -> Process:
        """Publish deposits in a process of its own."""
        publisher = self.crew.start(
            f"publisher-{len(self.publishers)}",
            f"{_PACKAGE}.publisher_process",
            journal=self.journal,
            seed=self.seed,
            **self._reached,
            **options,
        )
        self.publishers.append(publisher)
        return publisher

    @property
    def _reached(self) -> dict[str, str]:
        ground = self.ground
        return {"bus": ground.server.url, "admin": ground.admin, "topic": self.topic}

    @property
    def running(self) -> list[Process]:
        """The members that run."""
        return [member for member in self.members if member.running]

    def settle_in(self, members: int, **options: Any) -> None:
        """Let members join, until each has got messages and all of these are in effect."""
        for _ in range(members):
            self.start_member(**options)
        # So many accounts that no partition is without one: an empty one is nobody's share.
        self.start_publisher(copies=0, rate=12, accounts=32)
        for member in self.members:
            self.crew.until(lambda: member.lines("received") > 0, f"{member.name} has its share")  # noqa: B023
        self.come_to_rest()

    def close_accounts(self, accounts: Sequence[str]) -> None:
        """Let deposits of some accounts wait until the accounts are open again."""
        self.crew.ask("INSERT INTO closed SELECT unnest(%s::text[]) RETURNING 1", list(accounts))

    def open_accounts(self) -> None:
        self.crew.ask("WITH gone AS (DELETE FROM closed RETURNING 1) SELECT count(*) FROM gone")

    def effects(self) -> int:
        return int(self.crew.ask("SELECT count(*) FROM effect"))

    def parked(self) -> int:
        return int(self.crew.ask("SELECT count(*) FROM inbox_parked"))

    def published(self, account: str = "") -> int:
        """Count the deposits that the broker has accepted, of accounts that begin so."""
        return self.journal.read_text("utf-8").count(f'"message_id": "{account}')

    def moves(self) -> int:
        """Count how often partitions have left a member."""
        return sum(member.lines("revoked") for member in self.members)

    def calls(self) -> Counter[Place]:
        """Count the calls of handlers for each message."""
        return calls_of(line for member in self.members for line in lines_of(member.trace))

    def waited(self) -> float:
        """Return for how many seconds the longest-waiting message has waited."""
        oldest = "SELECT extract(epoch FROM now() - min(first_at)) FROM inbox_parked"
        return float(self.crew.ask(oldest) or 0)

    def flows_on(self, more: int = 50) -> None:
        """Wait until so many more deposits have come into effect."""
        before = self.effects()
        self.crew.until(lambda: self.effects() >= before + more, "deposits come into effect")

    def published_all(self) -> None:
        """Wait for publishers that end by themselves."""
        for publisher in self.publishers:
            assert publisher.wait(LIMIT) == 0, publisher.said()

    def come_to_rest(self) -> None:
        """Let the publishers end, and wait until all they published is in effect."""
        end_gently([publisher for publisher in self.publishers if publisher.running])
        wanted = len(self.consumers) * self.published()
        self.crew.until(lambda: self.effects() >= wanted, f"{wanted} deposits are in effect")
        self.crew.until(lambda: self.parked() == 0, "nothing waits in the table")

    def stop_members(self) -> None:
        end_gently(self.running)

    def kill_members(self) -> int:
        """Kill all at once; return how many."""
        running = self.running
        for member in running:
            member.signal(signal.SIGKILL)
        for member in running:
            assert member.wait() == -signal.SIGKILL, member.said()
        return len(running)

    def report(self, faults: int | None) -> Report:
        """Check what the run left behind, at rest."""
        traces = [member.trace for member in self.members]
        journals = [self.journal]
        return check(
            read_history(
                self.crew.database, self.consumers, journals=journals, traces=traces, faults=faults
            )
        )

    def tell(self, words: object) -> None:
        """Say what was seen, for those who run with -s or look at a failure."""
        print(f"\n{self.ground.name}, seed {self.seed}: {words}")  # noqa: T201 - a test's report
