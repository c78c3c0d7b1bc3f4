"""Processes of sagas are killed while replies are lost, doubled and late: every step has one outcome."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import create_engine

from pillarbox import SyncSqlAlchemyOutbox
from pillarbox.database import sync_url
from pillarbox.schema import apply
from pillarbox.servers import Nats, Postgres
from tests.faults.sagas.saga_process import REFUSED, SILENT, OrderCreated
from tests.support.processes import until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(240)]
ROOT = Path(__file__).parents[3]
ORDERS, KILLS = 24, 4
EXPECTED = {REFUSED: ("COMPENSATED", "failed"), SILENT: ("COMPENSATED", "timed-out")}
TABLES = (
    "CREATE TABLE orders (id text PRIMARY KEY, status text DEFAULT 'PENDING', ends int DEFAULT 0)",
    "CREATE TABLE stock (id text PRIMARY KEY)",
)


@pytest.fixture
def database(postgres18: Postgres) -> Iterator[str]:
    name = f"sagas_{uuid4().hex}"
    yield postgres18.create_database(name)
    postgres18.drop_database(name)


def place_orders(url: str, service: str) -> None:
    engine = create_engine(sync_url(url))
    apply(engine)
    with engine.begin() as connection:
        for table in TABLES:
            connection.exec_driver_sql(table)
        outbox = SyncSqlAlchemyOutbox(connection, service=service)
        for n in range(ORDERS):
            connection.exec_driver_sql(f"INSERT INTO orders (id) VALUES ('o-{n}')")
            outbox.add(OrderCreated(f"o-{n}"), key=f"o-{n}")
    engine.dispose()


def what_waits(connection: psycopg.Connection) -> str:
    """Tell of the sagas that have no end, and of messages that were set aside."""
    sagas = connection.execute(
        "SELECT start ->> 'key', state, step, part, tries, due_at - now() FROM saga "
        "WHERE finished_at IS NULL"
    ).fetchall()
    parked = connection.execute(
        "SELECT consumer, message_id, key, state, reason, error_message FROM inbox_parked"
    ).fetchall()
    unsent = connection.execute(
        "SELECT key, topic, status FROM outbox WHERE status <> 'SENT'"
    ).fetchall()
    return f"sagas {sagas}\nparked {parked}\nunsent {unsent}"


class Service:
    """The order service's processes, on one database."""

    def __init__(self, database: str, bus: str, folder: Path) -> None:
        self.name = f"s{uuid4().hex[:8]}"
        self._database, self._bus, self._folder = database, bus, folder
        self._made: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start one more process."""
        number = len(self._made)
        command = [sys.executable, "-m", "tests.faults.sagas.saga_process"]
        given = [self._database, self._bus, self.name, str(number)]
        with (self._folder / f"{number}.log").open("wb") as said:
            self._made.append(subprocess.Popen([*command, *given], cwd=ROOT, stderr=said))

    def kill(self) -> None:
        """Kill the oldest process that runs."""
        victim = next(each for each in self._made if each.poll() is None)
        victim.kill()
        victim.wait(10)

    def end(self) -> None:
        """Kill all that is left."""
        for each in self._made:
            each.kill()
            each.wait(10)


def number(connection: psycopg.Connection, query: str) -> int:
    found = connection.execute(query.encode()).fetchone()
    assert found is not None
    return int(found[0])


def until_more_moved(connection: psycopg.Connection, more: int) -> None:
    moves = "SELECT coalesce(sum(revision), 0) FROM saga"
    wanted = number(connection, moves) + more
    until(lambda: number(connection, moves) >= wanted, "sagas that go on", 60)


def until_all_ended(connection: psycopg.Connection) -> None:
    ended = "SELECT count(*) FROM saga WHERE finished_at IS NOT NULL"
    try:
        until(lambda: number(connection, ended) == ORDERS, "the end of every saga", 120)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{what_waits(connection)}") from None


def test_every_step_has_one_outcome_whoever_is_killed(
    database: str, nats_server: Nats, tmp_path: Path
) -> None:
    service = Service(database, nats_server.url, tmp_path)
    place_orders(database, service.name)
    with psycopg.connect(database, autocommit=True) as connection:
        try:
            service.start()
            service.start()
            for _ in range(KILLS):
                until_more_moved(connection, 12)
                service.kill()
                service.start()
            until_all_ended(connection)
        finally:
            service.end()

        check_states(connection)
        check_effects(connection)
        assert number(connection, "SELECT count(*) FROM saga_stray") > 0  # there was disorder


def check_states(connection: psycopg.Connection) -> None:
    """See that each saga has the end of its order, and each step one outcome."""
    found = connection.execute(
        "SELECT right(start ->> 'key', 1), state, cause, count(*) FROM saga GROUP BY 1, 2, 3"
    ).fetchall()
    assert sum(row[3] for row in found) == ORDERS
    assert {row[:3] for row in found} == {
        (digit, *EXPECTED.get(digit, ("COMPLETED", None))) for digit in "0123456789"
    }
    assert number(connection, "SELECT count(*) FROM saga_step WHERE outcome IS NULL") == 0
    undone_alone = (
        "SELECT count(*) FROM saga_step u WHERE part = 'undo' AND NOT EXISTS (SELECT FROM "
        "saga_step d WHERE d.saga_id = u.saga_id AND d.step = u.step AND d.part = 'do')"
    )
    assert number(connection, undone_alone) == 0


def check_effects(connection: psycopg.Connection) -> None:
    """See that orders and stock say what the sagas say, and that each end was told once."""
    ends = connection.execute(
        "SELECT s.state, o.status, o.ends, count(*) FROM saga s JOIN orders o "
        "ON o.id = s.start ->> 'key' GROUP BY 1, 2, 3"
    ).fetchall()
    assert {found[:3] for found in ends} == {
        ("COMPLETED", "CONFIRMED", 1),
        ("COMPENSATED", "REJECTED", 1),
    }
    wrong = (
        "SELECT count(*) FROM saga s LEFT JOIN stock ON stock.id = s.start ->> 'key' "
        "WHERE (s.state = 'COMPLETED') <> (stock.id IS NOT NULL)"
    )
    assert number(connection, wrong) == 0
