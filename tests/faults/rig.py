"""Servers of our own, a workload and projector processes on them, and what they leave behind."""

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import psycopg
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from pillarbox.database import sync_url
from pillarbox.schema import apply
from pillarbox.servers import Postgres
from tests.faults.brokers import Broker, Ground, Serve
from tests.faults.checker import Report, check
from tests.faults.evidence import evidence
from tests.faults.history import Faults, read_history
from tests.faults.process import Process
from tests.support.processes import until

Item = TypeVar("Item")
Made = TypeVar("Made")
LEASE: Final = 2.5
# A late WAL writer gives a kill the most to lose of what was committed asynchronously.
_SETTINGS: Final[Mapping[str, str | float]] = {"max_connections": 200, "wal_writer_delay": "10s"}
_SHOWN: Final = 4
_OPEN: Final = """
    SELECT count(*) FROM audit_claim WHERE projector = %s AND seqs && (
        SELECT coalesce(array_agg(seq), '{}') FROM outbox
        WHERE status = 'NEW' AND set_aside IS NULL
    )"""
_LEASES: Final = """
    SELECT count(*) FROM outbox_lease l JOIN audit_member m ON m.member = l.member_id
    WHERE m.projector = %s"""
_WAITING: Final = """
    SELECT count(*) FROM outbox
    WHERE status NOT IN ('SENT', 'DEAD') AND seq <= coalesce(%s, seq)"""
_EVER_TROUBLED: Final = "SELECT count(*) FROM audit_status WHERE new_status IN ('FAILED', 'DEAD')"
_UNEXPLAINED: Final = """
    SELECT count(*) FROM outbox o
    WHERE o.retry_count > (SELECT count(*) FROM audit_claim c WHERE c.seqs = ARRAY[o.seq])"""
_ATTEMPTS: Final = "SELECT coalesce(sum(retry_count), 0) FROM outbox"


@dataclass(slots=True)
class Rig:
    """One database and one broker, with everything that runs on them."""

    postgres: Postgres
    ground: Ground
    database: str
    folder: Path
    seed: int
    projectors: list[Process] = field(default_factory=list)
    workloads: list[Process] = field(default_factory=list)
    _connection: psycopg.Connection | None = None

    @property
    def broker(self) -> Broker:
        return self.ground.server

    @property
    def journal(self) -> Path:
        return self.folder / "journal.jsonl"

    def start_workload(self, seconds: float, **options: float) -> Process:
        """Write to the database for so long, in a process of its own."""
        name = f"workload-{len(self.workloads)}"
        said = {"database": self.database, "journal": self.journal, "seconds": seconds}
        started = self._start(name, "workload", {**said, "seed": self.seed, **options})
        self.workloads.append(started)
        return started

    def stop_workload(self) -> None:
        """Let the workload finish what it is doing."""
        for workload in self.workloads:
            if workload.running:
                workload.signal(signal.SIGTERM)

    def start_projector(self, fail_point: str | None = None, **options: float) -> Process:
        """Run a projector in a process of its own."""
        name = f"p{len(self.projectors)}"
        said: dict[str, Any] = {"database": self.database, "bus": self.broker.url, "name": name}
        said |= {"trace": self.folder / f"{name}.jsonl", "lease": LEASE, **options}
        if fail_point is not None:
            said["fail-point"] = fail_point
        started = self._start(name, "projector_process", said)
        self.projectors.append(started)
        return started

    def _start(self, name: str, module: str, options: dict[str, Any]) -> Process:
        words = [f"--{option.replace('_', '-')}={value}" for option, value in options.items()]
        return Process.start(name, f"tests.faults.{module}", words, self.folder)

    def ask(self, query: str, *values: object) -> Any:
        """Ask the database for one value, over a new connection when the old one is lost."""
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self.database, autocommit=True, connect_timeout=5)
        try:
            row = self._connection.execute(query.encode(), values).fetchone()
        except psycopg.OperationalError:
            self._connection.close()
            return self.ask(query, *values)
        assert row is not None
        return row[0]

    def open_claims(self, projector: Process) -> int:
        """Count claims of a projector with events that are not settled yet."""
        return int(self.ask(_OPEN, projector.name))

    def leases(self, projector: Process) -> int:
        return int(self.ask(_LEASES, projector.name))

    def waiting(self, up_to: int | None = None) -> int:
        """Count what is not delivered; up to a place in the outbox, if one is given."""
        return int(self.ask(_WAITING, up_to))

    def ever_troubled(self) -> int:
        """Count how often an event became FAILED or DEAD, also if it was sent afterwards."""
        return int(self.ask(_EVER_TROUBLED))

    def unexplained_attempts(self) -> int:
        """Count events with more attempts than claims that had nothing but the event in them.

        One that was alone in flight when its projector died counts as the killer, and no other.
        """
        return int(self.ask(_UNEXPLAINED))

    def attempts(self) -> int:
        return int(self.ask(_ATTEMPTS))

    def visible(self) -> int:
        """Count transactions that were committed without waiting for the disk."""
        return self.journal.read_text("utf-8").count('"fate": "visible"')

    def sent(self) -> int:
        return int(self.ask("SELECT count(*) FROM outbox WHERE status = 'SENT'"))

    def until(self, condition: Callable[[], bool], what: str, seconds: float) -> None:
        """Wait for a condition; fail with what the latest projectors said."""
        try:
            until(condition, what, seconds)
        except AssertionError as error:
            latest = [projector.said() for projector in self.projectors[-_SHOWN:]]
            raise AssertionError("\n\n".join([str(error), *latest])) from None

    def come_to_rest(self, seconds: float) -> None:
        """Wait for the end of the workload and for everything to be delivered."""
        for workload in self.workloads:
            assert workload.wait(seconds) == 0, workload.said()
        self.until(lambda: self.waiting() == 0, "everything is delivered", seconds)

    def stop_projectors(self) -> None:
        """End those that still run the gentle way; each must give its leases back."""
        running = [projector for projector in self.projectors if projector.running]
        for projector in running:
            projector.signal(signal.SIGTERM)
        for projector in running:
            assert projector.wait() == 0, projector.said()
            assert self.leases(projector) == 0, projector.said()

    def report(self, faults: Faults) -> Report:
        """Check what the run left behind, at rest."""
        traces = [projector.trace for projector in self.projectors]
        history = read_history(
            self.database, self.ground.read(), journal=self.journal, traces=traces, faults=faults
        )
        report = check(history)
        if report.violations:
            self.tell(evidence(self.database, report, history.log))
        return report

    def tell(self, words: str) -> None:
        """Say what was seen, for those who run with -s or look at a failure."""
        print(f"\n{self.broker.name}, seed {self.seed}: {words}")  # noqa: T201 - a test's report

    def close(self) -> None:
        """End every process of the rig."""
        if self._connection is not None:
            self._connection.close()
        for process in (*self.projectors, *self.workloads):
            process.signal(signal.SIGKILL)
            process.wait()


@contextmanager
def rigged(brokers: Mapping[str, Serve], folder: Path, seed: int) -> Iterator[list[Rig]]:
    """Start brokers and a database for each, in one server, and end everything afterwards."""
    with Postgres(18, settings=_SETTINGS) as postgres, ExitStack() as stack:
        grounds = side_by_side(lambda serve: stack.enter_context(serve()), [*brokers.values()])
        rigs = [
            stack.enter_context(_rig(postgres, ground, folder / name, seed))
            for name, ground in zip(brokers, grounds, strict=True)
        ]
        yield rigs


def side_by_side(act: Callable[[Item], Made], items: Sequence[Item]) -> list[Made]:
    """Do what mostly waits for all items at the same time."""
    with ThreadPoolExecutor(len(items)) as threads:
        return [*threads.map(act, items)]


@contextmanager
def _rig(postgres: Postgres, ground: Ground, folder: Path, seed: int) -> Iterator[Rig]:
    database = postgres.create_database(folder.name.replace("-", "_"))
    _make_tables(database)
    folder.mkdir()
    rig = Rig(postgres, ground, database, folder, seed)
    rig.journal.touch()
    try:
        yield rig
    finally:
        rig.close()


def _make_tables(database: str) -> None:
    engine = create_engine(sync_url(database), poolclass=NullPool)
    with engine.begin() as connection:
        apply(connection)
    engine.dispose()
    with psycopg.connect(database) as connection:
        connection.execute((Path(__file__).parent / "ledger.sql").read_bytes())


def seed_of(test: str) -> int:
    """Choose a seed, or take the one that is to be repeated, and show it."""
    seed = int(os.environ.get("PILLARBOX_FAULTS_SEED") or int.from_bytes(os.urandom(4), "big"))
    print(f"{test}: PILLARBOX_FAULTS_SEED={seed}")  # noqa: T201 - shown with a failure
    return seed
