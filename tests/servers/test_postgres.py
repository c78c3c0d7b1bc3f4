import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pillarbox.servers import PgBouncer, Postgres, ServerFailed, available
from pillarbox.servers import postgres as postgres_module
from tests.support.processes import alive

SSL_REQUEST = struct.pack(">ii", 8, 80877103)


@pytest.fixture(scope="module", params=[18, 16, 15])
def server(request: pytest.FixtureRequest) -> Iterator[Postgres]:
    reason = available(f"postgres{request.param}")
    if reason is not None:
        pytest.skip(reason)
    with Postgres(request.param) as started:
        yield started


def ask(url: str, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True, connect_timeout=10) as connection:
        cursor = connection.execute(query)
        return cursor.fetchall() if cursor.description else []


def test_the_server_runs_in_our_folder_with_the_version_that_was_asked_for(
    server: Postgres,
) -> None:
    assert ask(server.url, "SHOW data_directory") == [(str(server.data),)]
    assert ask(server.url, "SHOW fsync") == [("on",)]
    assert server.version.startswith(str(server.major))


def test_rows_that_were_committed_survive_a_kill_and_a_restart(server: Postgres) -> None:
    ask(server.url, "CREATE TABLE IF NOT EXISTS kept (id int)")
    ask(server.url, "INSERT INTO kept VALUES (1)")
    port, pid = server.port, server.pid

    server.kill()
    server.restart()

    assert ask(server.url, "SELECT id FROM kept") == [(1,)]
    assert server.port == port
    assert not alive([pid])


def test_a_frozen_server_is_mute_until_it_is_thawed(server: Postgres) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=0.2) as connection:
        server.freeze()
        connection.sendall(SSL_REQUEST)
        with pytest.raises(TimeoutError):
            connection.recv(1)

        server.thaw()
        connection.settimeout(10)

        assert connection.recv(1) == b"N"


def test_a_server_that_runs_is_ended_gently_by_restart(server: Postgres) -> None:
    before = server.pid

    server.restart()

    assert server.pid != before
    assert "database system is shut down" in server.logs.read_text()


def test_a_fresh_database_has_an_address_of_its_own(server: Postgres) -> None:
    url = server.create_database("shop one")

    assert ask(url.replace(" ", "%20"), "SELECT current_database()") == [("shop one",)]

    server.drop_database("shop one")
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        ask(url.replace(" ", "%20"), "SELECT 1")


def test_settings_reach_the_server_and_the_default_database_is_made() -> None:
    with Postgres(settings={"wal_level": "logical", "fsync": "off"}, database="shop") as server:
        assert ask(server.url, "SHOW wal_level") == [("logical",)]
        assert ask(server.url, "SELECT current_database()") == [("shop",)]


def test_a_setting_that_postgres_refuses_fails_with_its_words_and_logs() -> None:
    with pytest.raises(ServerFailed, match="no_such_setting") as refused:
        Postgres(settings={"no_such_setting": 1}).start()

    logs = refused.value.logs
    assert logs is not None
    assert str(logs) in str(refused.value)
    assert "no_such_setting" in (logs / "server.log").read_text()
    for file in logs.iterdir():
        file.unlink()
    logs.rmdir()


def test_the_folder_is_gone_after_stop_and_stop_may_be_repeated() -> None:
    server = Postgres(settings={"fsync": "off"}).start()
    folder, pid = server.folder, server.pid

    server.stop()
    server.stop()

    assert not folder.exists()
    assert not alive([pid])


def test_a_named_folder_keeps_its_data_for_the_next_start() -> None:
    with Postgres(settings={"fsync": "off"}) as host:
        folder = host.folder / "kept"
        with Postgres(folder=folder) as first:
            ask(first.url, "CREATE TABLE kept ()")
        with Postgres(folder=folder) as second:
            assert ask(second.url, "SELECT count(*) FROM kept") == [(0,)]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_shared_memory_of_a_killed_server_is_given_back() -> None:
    with Postgres() as server:
        maps = Path(f"/proc/{server.pid}/maps").read_text().splitlines()
        files = {line.split()[5] for line in maps if "/PostgreSQL." in line}
        keys = {line.split()[4] for line in maps if "/SYSV" in line}
        server.kill()

    left = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    assert keys
    assert not keys & {line.split()[1] for line in left}
    assert not [file for file in files if Path(file).exists()]


@pytest.mark.skipif("os.geteuid() != 0", reason="only root runs it as another user")
def test_programs_that_the_other_user_cannot_reach_are_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        postgres_module, "reachable", lambda path, _: "site-packages" not in str(path)
    )

    with Postgres() as server:
        assert server.programs.is_relative_to(server.folder)


def test_pgbouncer_pools_in_front_of_its_upstream(
    postgres18: Postgres, pgbouncer: PgBouncer
) -> None:
    ours = [(str(postgres18.data),)]
    assert ask(pgbouncer.url, "SHOW data_directory") == ours
    port = pgbouncer.port

    pgbouncer.kill()
    pgbouncer.restart()

    assert pgbouncer.port == port
    assert ask(pgbouncer.url, "SHOW data_directory") == ours
