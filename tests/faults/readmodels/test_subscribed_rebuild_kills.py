"""A rebuild from a broker's log is killed on its way; the next one goes on to the same table."""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from pillarbox.bus.outcome import ACCEPTED
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.servers import Nats
from pillarbox.testing import new_topic
from tests.faults.readmodels.subscribed_process import made

MESSAGES, ACCOUNTS, KILLS, PART = 3_000, 7, 3, 500
pytestmark = [pytest.mark.faults, pytest.mark.timeout(240)]


def deposit(topic: str, number: int) -> MessageEnvelope:
    account = f"a{number % ACCOUNTS}"
    return MessageEnvelope(
        event_id=f"{topic}-{number}", event_type="Deposited", topic=topic, key=account,
        payload={"account_id": account, "cents": number},
    )  # fmt: skip


async def publish(url: str, bus_url: str, topic: str) -> None:
    """Begin the model on an empty topic, and publish what only the rebuild will read."""
    box, model = made(url, bus_url, topic)
    await box.bus.start()
    await model.drain()
    for first in range(0, MESSAGES, PART):
        batch = [deposit(topic, number) for number in range(first, first + PART)]
        assert list(await box.bus.publish(batch)) == [ACCEPTED] * PART
    await box.bus.close()
    await box.engine.dispose()


@contextmanager
def rebuilding(*words: str) -> Iterator[tuple[subprocess.Popen[str], Iterator[list[str]]]]:
    """A process that rebuilds, and what it tells: phase, position, target."""
    command = [sys.executable, "-m", "tests.faults.readmodels.subscribed_process", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, (line.split() for line in process.stdout)
        finally:
            process.kill()


def rows(url: str, query: str) -> list[tuple[str, int]]:
    with psycopg.connect(url) as connection:
        return connection.execute(query.encode()).fetchall()


async def test_the_table_is_the_fold_however_often_its_rebuild_is_killed(
    url: str, nats_server: Nats
) -> None:
    topic = new_topic()
    await publish(url, nats_server.url, topic)
    positions: list[int] = []
    for _ in range(KILLS):
        with rebuilding(url, nats_server.url, topic) as (process, told):
            reached = positions[-1] if positions else 0
            positions.append(next(int(at) for _, at, _ in told if int(at) > reached))
            process.kill()

    with rebuilding(url, nats_server.url, topic) as (process, told):
        *_, last = told

    expected = Counter[str]()
    for number in range(MESSAGES):
        expected[f"a{number % ACCOUNTS}"] += number
    assert process.returncode == 0
    assert positions == sorted(positions)
    assert 0 < positions[0] <= positions[-1] < MESSAGES
    assert dict(rows(url, "SELECT account_id, cents FROM account")) == expected
    assert rows(url, "SELECT state, generation FROM readmodel") == [("live", 2)]
    assert rows(url, "SELECT consumer, count(*) FROM inbox GROUP BY 1") == [
        ("accounts-2", MESSAGES)
    ]
    phase, position, target = last
    assert (phase, position) == ("done", target)
    assert positions[-1] < int(position)
