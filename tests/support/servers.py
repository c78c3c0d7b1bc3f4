"""Real servers for tests, one of each per run, started when the first test asks for it."""

import faulthandler
import os
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from pillarbox.event.rules import RABBITMQ
from pillarbox.servers import (
    Nats,
    PgBouncer,
    Postgres,
    RabbitMq,
    Redis,
    Server,
    available,
)
from pillarbox.servers.locate import LOCATORS
from tests.support.brokers import LinedKafka, LinedPulsar

_POSTGRES_SETTINGS: Mapping[str, str | float] = {
    "max_connections": 300,
    "track_commit_timestamp": "on",
    "full_page_writes": "off",
    "fsync": "off",
}

_EXIT_SECONDS = 120
_MISSING = "IS MISSING"
_TOLD = "servers"
_BAD = ("SKIP", "FAIL")

AnyServer = TypeVar("AnyServer", bound=Server)


@dataclass(slots=True)
class Roll:
    """What became of each server in this run."""

    lines: dict[str, str] = field(default_factory=dict)


_ROLL = pytest.StashKey[Roll]()


def pytest_configure(config: pytest.Config) -> None:
    # A broker of a test lives for minutes: compiled in one step, Pulsar is there in half the time.
    os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")
    config.stash[_ROLL] = Roll()


def pytest_unconfigure(config: pytest.Config) -> None:
    """A thread that nothing ends would hold the run for ever: say where it stands, and fail.

    A process with a part of the tests waits for the others when it is done, and is ended with them.
    """
    if not hasattr(config, "workerinput"):
        faulthandler.dump_traceback_later(_EXIT_SECONDS, exit=True)


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


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the process that sums up what became of the servers of this one."""
    told: dict[str, object] | None = getattr(session.config, "workeroutput", None)
    if told is not None:
        told[_TOLD] = session.config.stash[_ROLL].lines


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take in what a process with a part of the tests tells; the worse line stands."""
    lines = node.config.stash[_ROLL].lines
    for name, line in getattr(node, "workeroutput", {}).get(_TOLD, {}).items():
        if not lines.get(name, "").startswith(_BAD):
            lines[name] = line


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    lines = config.stash[_ROLL].lines
    terminalreporter.section("servers")
    for name in LOCATORS:
        line = lines.get(name, "not used")
        terminalreporter.write_line(f"{name:<12}{line}", red=line.startswith(_BAD))


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
    # The limit that version 4 has by itself.
    settings = {"max_message_size": RABBITMQ.message_max_bytes}
    yield from _serve(pytestconfig, "rabbitmq", RabbitMq(settings=settings))


@pytest.fixture(scope="session")
def kafka_server(pytestconfig: pytest.Config) -> Iterator[LinedKafka]:
    yield from _serve(pytestconfig, "kafka", LinedKafka())


@pytest.fixture(scope="session")
def pulsar_server(pytestconfig: pytest.Config) -> Iterator[LinedPulsar]:
    yield from _serve(pytestconfig, "pulsar", LinedPulsar())


@pytest.fixture(scope="session")
def pgbouncer(pytestconfig: pytest.Config, postgres18: Postgres) -> Iterator[PgBouncer]:
    yield from _serve(pytestconfig, "pgbouncer", PgBouncer(postgres18))
