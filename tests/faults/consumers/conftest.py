"""Banks and shops on brokers that are started once for all drills of consumers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from pillarbox.servers import Postgres
from tests.faults.consumers.grounds import BROKERS, Ground, started
from tests.faults.consumers.member_process import CONSUMERS
from tests.faults.consumers.rig import Bank, Crew, make_tables
from tests.faults.consumers.shop import Shop
from tests.faults.rig import seed_of, side_by_side
from tests.support.servers import require

# What a frozen process has claimed must not stay locked for as long as its connection stands.
_SETTINGS: Final[Mapping[str, str | float]] = {
    "max_connections": 500,
    "idle_in_transaction_session_timeout": "5s",
}


@dataclass(slots=True)
class Brokers:
    """The brokers that run so far."""

    config: pytest.Config
    running: dict[str, Ground] = field(default_factory=dict)

    def get(self, names: Sequence[str]) -> list[Ground]:
        """Return brokers, and start those that nobody has asked for before."""
        missing = [name for name in names if name not in self.running]
        for name in missing:
            require(self.config, name)
        if missing:
            self.running.update(zip(missing, side_by_side(started, missing), strict=True))
        return [self.running[name] for name in names]


@pytest.fixture(scope="package")
def brokers(pytestconfig: pytest.Config) -> Iterator[Brokers]:
    made = Brokers(pytestconfig)
    yield made
    for ground in made.running.values():
        ground.server.stop()


@pytest.fixture(scope="package")
def postgres(pytestconfig: pytest.Config) -> Iterator[Postgres]:
    require(pytestconfig, "postgres18")
    with Postgres(18, settings=_SETTINGS) as server:
        yield server


@dataclass(slots=True)
class Town:
    """Make banks for a test; each has a topic and a database of its own."""

    brokers: Brokers
    postgres: Postgres
    folder: Path
    name: str
    seed: int
    crews: list[Crew] = field(default_factory=list)

    def open(
        self, names: Sequence[str] = BROKERS, consumers: Sequence[str] = CONSUMERS, **options: Any
    ) -> list[Bank]:
        """Open a bank on each of these brokers, with these consumers."""
        grounds = self.brokers.get(names)
        return side_by_side(lambda ground: self._open(ground, consumers, options), grounds)

    def _open(self, ground: Ground, consumers: Sequence[str], options: dict[str, Any]) -> Bank:
        crew = self._crew(ground.name, "bank.sql")
        # Groups live longer than a test: each has members of its own.
        names = [f"{self.name}-{consumer}" for consumer in consumers]
        bank = Bank(ground, f"{self.name}.account", crew, self.seed, names, options)
        bank.journal.touch()
        ground.prepare(bank.topic, bank.consumers)
        return bank

    def shops(self, consumer: str, **options: Any) -> list[Shop]:
        """Open a shop on each broker: a bank for its payments, and a database for its orders."""
        banks = self.open(consumers=[consumer], **options)
        return [Shop(self._crew(f"{bank.ground.name}-orders", "shop.sql"), bank) for bank in banks]

    def _crew(self, name: str, tables: str) -> Crew:
        folder = self.folder / name
        folder.mkdir()
        database = self.postgres.create_database(f"{self.name}_{name.replace('-', '_')}")
        make_tables(database, tables)
        self.crews.append(Crew(database, folder))
        return self.crews[-1]


@pytest.fixture
def town(
    request: pytest.FixtureRequest, brokers: Brokers, postgres: Postgres, tmp_path: Path
) -> Iterator[Callable[[str], Town]]:
    made: list[Town] = []

    def found(name: str) -> Town:
        made.append(Town(brokers, postgres, tmp_path, name, seed_of(request.node.name)))
        return made[-1]

    yield found
    for each in made:
        for crew in each.crews:
            crew.close()
