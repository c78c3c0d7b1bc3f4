"""Real servers for tests, one of each per run, started when the first test asks for it."""

import os
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import pytest

from pillarbox.servers import (
    Kafka,
    Nats,
    PgBouncer,
    Postgres,
    Pulsar,
    RabbitMq,
    Redis,
    Server,
    available,
)
from pillarbox.servers.locate import LOCATORS

_POSTGRES_SETTINGS: Mapping[str, str | float] = {
    "max_connections": 300,
    "track_commit_timestamp": "on",
    "full_page_writes": "off",
}

_MISSING = "IS MISSING"

AnyServer = TypeVar("AnyServer", bound=Server)


@dataclass(slots=True)
class Roll:
    """What became of each server in this run."""

    lines: dict[str, str] = field(default_factory=dict)


_ROLL = pytest.StashKey[Roll]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_ROLL] = Roll()


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("servers"):
        for name in mark.args:
            require(item.config, name)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple) and _MISSING in report.longrepr[2]:
        # One place for all tests, so that the summary folds them into one line per server.
        report.longrepr = (__file__, 1, report.longrepr[2])
    return report


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    lines = config.stash[_ROLL].lines
    terminalreporter.section("servers")
    for name in LOCATORS:
        line = lines.get(name, "not used")
        terminalreporter.write_line(f"{name:<12}{line}", red=line.startswith(("SKIP", "FAIL")))


def require(config: pytest.Config, name: str) -> None:
    """Skip the test when a server cannot be run here; fail it in CI."""
    reason = available(name)
    if reason is None:
        config.stash[_ROLL].lines.setdefault(name, "ran")
        return
    if os.environ.get("CI", "").lower() in {"1", "true"}:
        config.stash[_ROLL].lines[name] = f"FAILED: {reason}"
        pytest.fail(f"{name} {_MISSING}: {reason}", pytrace=False)
    config.stash[_ROLL].lines[name] = f"SKIPPED: {reason}"
    pytest.skip(f"{name} {_MISSING}: {reason}")


def _serve(config: pytest.Config, name: str, server: AnyServer) -> Iterator[AnyServer]:
    require(config, name)
    lines = config.stash[_ROLL].lines
    lines[name] = "FAILED to start"
    with server:
        lines[name] = f"ran ({server.version})"
        yield server


@pytest.fixture(scope="session")
def postgres18(pytestconfig: pytest.Config) -> Iterator[Postgres]:
    yield from _serve(pytestconfig, "postgres18", Postgres(18, settings=_POSTGRES_SETTINGS))


@pytest.fixture(scope="session")
def postgres16(pytestconfig: pytest.Config) -> Iterator[Postgres]:
    yield from _serve(pytestconfig, "postgres16", Postgres(16, settings=_POSTGRES_SETTINGS))


@pytest.fixture(scope="session")
def postgres15(pytestconfig: pytest.Config) -> Iterator[Postgres]:
    yield from _serve(pytestconfig, "postgres15", Postgres(15, settings=_POSTGRES_SETTINGS))


@pytest.fixture(scope="session")
def nats_server(pytestconfig: pytest.Config) -> Iterator[Nats]:
    yield from _serve(pytestconfig, "nats", Nats())


@pytest.fixture(scope="session")
def redis_server(pytestconfig: pytest.Config) -> Iterator[Redis]:
    yield from _serve(pytestconfig, "redis", Redis())


@pytest.fixture(scope="session")
def rabbitmq_server(pytestconfig: pytest.Config) -> Iterator[RabbitMq]:
    yield from _serve(pytestconfig, "rabbitmq", RabbitMq())


@pytest.fixture(scope="session")
def kafka_server(pytestconfig: pytest.Config) -> Iterator[Kafka]:
    yield from _serve(pytestconfig, "kafka", Kafka())


@pytest.fixture(scope="session")
def pulsar_server(pytestconfig: pytest.Config) -> Iterator[Pulsar]:
    yield from _serve(pytestconfig, "pulsar", Pulsar())


@pytest.fixture(scope="session")
def pgbouncer(pytestconfig: pytest.Config, postgres18: Postgres) -> Iterator[PgBouncer]:
    yield from _serve(pytestconfig, "pgbouncer", PgBouncer(postgres18))
