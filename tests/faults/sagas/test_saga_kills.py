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


def test_every_step_has_one_outcome_whoever_is_killed(database: str, nats_server: Nats) -> None:
    service = f"s{uuid4().hex[:8]}"
    place_orders(database, service)
    made: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        command = [sys.executable, "-m", "tests.faults.sagas.saga_process"]
        given = [database, nats_server.url, service, str(len(made))]
        made.append(subprocess.Popen([*command, *given], cwd=ROOT, stderr=subprocess.PIPE))

    with psycopg.connect(database, autocommit=True) as connection:

        def number(query: str) -> int:
            found = connection.execute(query.encode()).fetchone()
            assert found is not None
            return int(found[0])

        try:
            start()
            start()
            for _ in range(KILLS):
                moved = number("SELECT coalesce(sum(revision), 0) FROM saga")
                until(
                    lambda seen=moved: (
                        number("SELECT coalesce(sum(revision), 0) FROM saga") >= seen + 12
                    ),  # type: ignore[misc]
                    "sagas that go on",
                    60,
                )
                victim = next(each for each in made if each.poll() is None)
                victim.kill()
                victim.wait(10)
                start()
            until(
                lambda: number("SELECT count(*) FROM saga WHERE finished_at IS NOT NULL") == ORDERS,
                "the end of every saga",
                120,
            )
        finally:
            for each in made:
                each.kill()
                each.wait(10)
                assert each.stderr is not None
                each.stderr.close()

        found = connection.execute(
            "SELECT right(start ->> 'key', 1), state, cause, count(*) FROM saga GROUP BY 1, 2, 3"
        ).fetchall()
        assert sum(row[3] for row in found) == ORDERS
        assert {row[:3] for row in found} == {
            (digit, *EXPECTED.get(digit, ("COMPLETED", None))) for digit in "0123456789"
        }
        assert number("SELECT count(*) FROM saga_step WHERE outcome IS NULL") == 0
        undone_alone = (
            "SELECT count(*) FROM saga_step u WHERE part = 'undo' AND NOT EXISTS (SELECT FROM "
            "saga_step d WHERE d.saga_id = u.saga_id AND d.step = u.step AND d.part = 'do')"
        )
        assert number(undone_alone) == 0
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
        assert number(wrong) == 0
        assert number("SELECT count(*) FROM saga_stray") > 0  # there was disorder
