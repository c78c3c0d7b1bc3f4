"""Runners and rebuilds of a read model are killed while events are recorded; the table is the fold."""

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator

import psycopg
import pytest

KILLS = 8
WRITERS = 3
ROLES = ("run", "rebuild")
LIMIT = 60.0
pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]

# Written by hand: a number, a version and a deposit, by writers that hold transactions open.
RECORD = """
    INSERT INTO outbox (occurred_at, shard_hash, id, event_type, topic, key, aggregate_type,
        aggregate_id, aggregate_version, event_number, payload)
    VALUES (now(), 0, gen_random_uuid(), 'Deposited', 't', %(account)s::text, 'account',
        %(account)s::text,
        %(version)s, 1, json_build_object('account_id', %(account)s::text, 'cents', %(cents)s::int))
"""


class Member:
    """A process that runs the model or builds it again."""

    def __init__(self, url: str, what: str) -> None:
        command = [sys.executable, "-m", "tests.faults.readmodels.model_process", url, what]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()


class Writer:
    """A connection that records deposits on accounts of its own, in transactions of any length."""

    def __init__(self, url: str, name: int, chance: random.Random) -> None:
        self.connection = psycopg.connect(url)
        self.name, self.chance = name, chance
        self.versions: Counter[str] = Counter()
        self.committed: Counter[str] = Counter()
        self.open: list[tuple[str, int]] = []

    def act(self) -> None:
        """Record a deposit, or end the transaction: mostly by a commit."""
        if self.open and self.chance.random() < 0.3:
            self.end(self.chance.random() < 0.85)
            return
        account, cents = f"{self.name}-{self.chance.randrange(3)}", self.chance.randrange(1, 9)
        self.versions[account] += 1
        values = {"account": account, "version": self.versions[account], "cents": cents}
        self.connection.execute(RECORD, values)
        self.open.append((account, cents))

    def end(self, commits: bool) -> None:
        if commits:
            self.connection.commit()
            for account, cents in self.open:
                self.committed[account] += cents
        else:
            self.connection.rollback()
            for account, _ in self.open:
                self.versions[account] -= 1
        self.open = []


@pytest.fixture
def members(url: str) -> Iterator[list[Member]]:
    """A runner and a rebuild; whatever happens, none is left behind."""
    made = [Member(url, what) for what in ROLES]
    yield made
    for member in made:
        member.kill()


def test_the_table_is_the_fold_after_every_kill(url: str, members: list[Member]) -> None:
    chance = random.Random(7)
    writers = [Writer(url, number, chance) for number in range(WRITERS)]
    for kill in range(KILLS):
        for _ in range(chance.randrange(20, 60)):
            chance.choice(writers).act()
            time.sleep(0.002)  # the load's own pace: a kill meets batches, switches and gaps
        which = kill % len(ROLES)
        members[which].kill()
        members[which] = Member(url, ROLES[which])
    for writer in writers:
        writer.end(commits=True)
        writer.connection.close()
    expected = {account: n for w in writers for account, n in w.committed.items()}

    assert settled(url, expected) == expected
    assert sum(expected.values()) > 50


def settled(url: str, expected: dict[str, int]) -> dict[str, int]:
    """Return the rows once they are as expected, or as they are when time is over."""
    until = time.monotonic() + LIMIT
    with psycopg.connect(url, autocommit=True) as connection:
        while True:
            rows = connection.execute("SELECT account_id, cents FROM account").fetchall()
            found = {str(account): int(cents) for account, cents in rows}
            if found == expected or time.monotonic() > until:
                return found
            time.sleep(0.05)
