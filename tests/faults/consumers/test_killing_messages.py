"""A message that kills its process is found on every broker, and the others are unharmed.

Each broker has another way to say that a message was delivered before; one cannot say it at all.
"""

import asyncio
import signal
import subprocess
import sys
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import create_engine

from pillarbox import MessageEnvelope
from pillarbox.database import sync_url
from pillarbox.servers import Postgres
from tests.bus.subscription_rig import publish_all
from tests.consumer.rig import Base
from tests.faults.consumers.buses import drill_bus
from tests.faults.consumers.conftest import Brokers
from tests.faults.consumers.grounds import BROKERS, Ground
from tests.faults.consumers.rig import make_tables
from tests.faults.rig import side_by_side

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

MAX_CRASHES = 2
LIMIT = 120.0
NAMES = ("m0", "m1", "killer", "m2", "m3")

_LEFT = """
    SELECT (SELECT count(*) FROM inbox), (SELECT count(*) FROM inbox_attempt),
        (SELECT count(*) FROM inbox_parked WHERE state = 'parked' AND reason = 'crashed'
            AND message_id LIKE '%killer'),
        (SELECT count(*) FROM inbox_parked)"""


def test_a_message_that_kills_its_process_is_parked_on_every_broker(
    brokers: Brokers, postgres: Postgres
) -> None:
    grounds = brokers.get(BROKERS)

    deaths = side_by_side(lambda ground: deaths_on(ground, postgres), grounds)

    # A first delivery is taken for a later one where the broker cannot tell.
    assert set(deaths) <= {MAX_CRASHES, MAX_CRASHES + 1}, dict(zip(BROKERS, deaths, strict=True))


def deaths_on(ground: Ground, postgres: Postgres) -> int:
    """Let a killer among others be delivered; return how many processes it killed."""
    name = f"killed{uuid4().hex}"
    database = postgres.create_database(name)
    make_tables(database, "bank.sql")
    engine = create_engine(sync_url(database))
    Base.metadata.create_all(engine)
    engine.dispose()
    ground.prepare(name, [name])
    asyncio.run(publish_all(drill_bus(ground.server.url, ground.admin), messages(name)))

    deaths = run_until_it_lives(ground, database, name)

    with psycopg.connect(database) as connection:
        assert connection.execute(_LEFT).fetchone() == (4, 0, 1, 1), ground.name
    return deaths


def messages(topic: str) -> list[MessageEnvelope]:
    return [
        MessageEnvelope(name, "OrderCreated", {"n": 1}, topic=topic, key=name) for name in NAMES
    ]


def run_until_it_lives(ground: Ground, database: str, name: str) -> int:
    """Start the process as a supervisor does; return how often it died."""
    url = database.replace("postgresql:", "postgresql+psycopg:")
    broker = (ground.server.url, ground.admin, name, name)
    words = ("-m", "tests.consumer.killer_process", url, str(MAX_CRASHES), *broker)
    for deaths in range(10):
        ended = subprocess.run([sys.executable, *words], timeout=LIMIT, check=False)
        if ended.returncode == 0:
            return deaths
        assert ended.returncode == -signal.SIGKILL, ground.name
    raise AssertionError(f"the message killed ten processes on {ground.name} and was not parked")
