import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from pillarbox.servers import Nats, PgBouncer, Postgres, Redis, Server, ServerFailed
from pillarbox.servers import server as server_module
from pillarbox.servers.ports import free_ports, is_free


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))  # and no listen: nobody waits for its answer
        yield holder.getsockname()[1]


def first(port: int) -> Callable[[Sequence[str]], dict[str, int]]:
    """Give a port that is taken at the first call, as if it was lost in a race."""
    answers = iter([port])

    def choose(names: Sequence[str]) -> dict[str, int]:
        return {**free_ports(names), "client": next(answers, free_ports(names)["client"])}

    return choose


def test_free_ports_differ_and_lie_below_those_of_outgoing_connections() -> None:
    ports = free_ports([str(number) for number in range(50)])

    assert len(set(ports.values())) == 50
    assert max(ports.values()) < 32768


def test_a_port_that_somebody_holds_is_not_free(taken: int) -> None:
    assert not is_free(taken)


@pytest.mark.servers("redis")
@pytest.mark.parametrize("kind", [Nats, Postgres, Redis])
def test_a_port_that_was_lost_in_a_race_is_replaced(
    kind: type[Server], taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "free_ports", first(taken))

    with kind() as server:
        assert server.port != taken
        assert server.running


@pytest.mark.servers("pgbouncer")
def test_a_pool_that_lost_its_port_takes_another(
    postgres18: Postgres, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "free_ports", first(taken))

    with PgBouncer(postgres18) as server:
        assert server.port != taken


@pytest.mark.servers("redis")
def test_another_server_on_the_port_is_not_taken_for_ours() -> None:
    with Redis() as other, pytest.raises(ServerFailed, match="in use") as refused:
        Redis(port=other.port).start()

    assert refused.value.logs is not None
    shutil.rmtree(refused.value.logs)


def test_a_started_server_is_not_started_twice() -> None:
    with Nats() as server, pytest.raises(ServerFailed, match="started already"):
        server.start()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()

    with pytest.raises(ServerFailed, match=f"nats has no folder to run in.*{file}"):
        Nats(folder=file / "data").start()


def test_a_stopped_server_says_that_it_is_not_started() -> None:
    server = Nats()

    with pytest.raises(ServerFailed, match="nats is not started"):
        server.kill()
    assert not server.running
