"""Places of a network: who reaches whom, and that nothing of it stays."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pillarbox.servers import ServerFailed
from pillarbox.servers.network import Network, Place
from tests.support.processes import alive, script, until

PORT = 7000
ANSWERING = f"""
import socketserver
class Answer(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall(b"here")
with socketserver.TCPServer(("0.0.0.0", {PORT}), Answer) as server:
    print("ready", flush=True)
    server.serve_forever()
"""
ASKING = f"""
import socket, sys
try:
    with socket.create_connection((sys.argv[1], {PORT}), timeout=1) as connection:
        print(connection.recv(4).decode())
except OSError:
    print("silence")
"""
HOLDING = """
import json, signal
from pillarbox.servers.network import Network
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
with Network(2) as network:
    said = {"folder": str(network._owned.folder), "link": network._link}
    print(json.dumps(said), flush=True)
    signal.pause()
"""

pytestmark = pytest.mark.servers("network")


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with Network(3) as made:
        yield made


@contextmanager
def answering(place: Place) -> Iterator[None]:
    command = [*place.enter, sys.executable, "-c", ANSWERING]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n"
            yield
        finally:
            server.kill()


def reaches(address: str, *, enter: tuple[str, ...] = ()) -> bool:
    asked = subprocess.run(
        [*enter, sys.executable, "-c", ASKING, address],
        check=True,
        capture_output=True,
        text=True,
        timeout=20,
    )
    return asked.stdout == "here\n"


def exists(link: str) -> bool:
    return Path("/sys/class/net", link).exists()


def test_a_place_that_is_cut_off_is_reached_by_this_machine_alone(network: Network) -> None:
    one, two, three = network.places
    with answering(one), answering(two), answering(three):
        assert reaches(one.inner, enter=two.enter)
        assert reaches(three.inner, enter=one.enter)

        network.cut(one)
        assert not reaches(one.inner, enter=two.enter)
        assert not reaches(three.inner, enter=one.enter)
        assert reaches(two.inner, enter=three.enter)
        assert reaches(one.outer)
        assert reaches(two.outer)

        network.heal(one)
        assert reaches(one.inner, enter=two.enter)
        assert reaches(three.inner, enter=one.enter)


def test_a_connection_between_places_stays_open_over_a_cut(network: Network) -> None:
    one, two, _ = network.places
    listening = "import socket; s = socket.create_server(('', 7001)); print(1, flush=True); "
    receiving = listening + "c, _ = s.accept(); print(c.recv(4).decode(), flush=True)"
    sending = (
        f"import socket; c = socket.create_connection(('{one.inner}', 7001), timeout=9); "
        "print(1, flush=True); input(); c.sendall(b'late'); print(2, flush=True); input()"
    )
    with (
        talking(one, receiving) as receiver,
        talking(two, sending) as sender,
    ):
        network.cut(one)
        tell(sender)
        assert said(sender) == "2"

        network.heal(one)

        assert said(receiver) == "late"


@contextmanager
def talking(place: Place, program: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program that says `1` when it is ready."""
    command = [*place.enter, sys.executable, "-c", program]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert said(process) == "1"
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def test_networks_beside_one_another_have_their_own_addresses() -> None:
    with (
        Network(1, chooser=random.Random(7)) as first,
        Network(1, chooser=random.Random(7)) as second,
        answering(second.places[0]),
    ):
        assert first.places[0].outer != second.places[0].outer
        assert reaches(second.places[0].outer)
        assert not reaches(first.places[0].outer)


def test_a_network_that_is_stopped_is_gone_and_refuses() -> None:
    network = Network(1).start()
    link, place = network._link, network.places[0]
    assert exists(link)

    network.stop()

    assert not exists(link)
    assert network.places == ()
    with pytest.raises(ServerFailed, match="is not started"):
        network.cut(place)
    network.stop()


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_of_a_network_outlives_a_parent_that_ends_by(ending: signal.Signals) -> None:
    with script(HOLDING) as parent:
        assert exists(parent.said["link"])

        parent.signal(ending)

        parent.leaves_nothing()
        until(lambda: not exists(parent.said["link"]), "end of the link")


def test_nothing_of_a_network_outlives_its_guardian() -> None:
    with Network(1) as network:
        link, guardian = network._link, network._owned._process.pid

        os.kill(guardian, signal.SIGKILL)

        until(lambda: not exists(link), "end of the link")
        until(lambda: not alive([network._switch]), "end of the switch")
