import os
import signal
import sys

import pytest

from pillarbox.servers import Postgres
from tests.support.processes import alive, script, until

QUICK = 'Postgres(settings={"fsync": "off"})'


def holding(server: str, then: str = "pass") -> str:
    """Write a script that starts a server, says its folder and waits."""
    return f"""
import json, os, signal
from pillarbox.servers import Postgres, RabbitMq
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
with {server} as server:
    said = {{"folder": str(server.folder)}}
    {then}
    print(json.dumps(said), flush=True)
    signal.pause()
"""


UNCLOSED = f"""
import json, sys
from pillarbox.servers import Postgres
server = {QUICK}.start()
print(json.dumps({{"folder": str(server.folder)}}), flush=True)
sys.stdin.readline()
sys.exit("nobody stops the server")
"""


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_process_and_no_folder_outlive_a_parent_that_ends_by(ending: signal.Signals) -> None:
    with script(holding(QUICK)) as parent:
        assert len(parent.family) > 2

        parent.signal(ending)

        parent.leaves_nothing()


def test_a_frozen_server_does_not_outlive_its_parent() -> None:
    with script(holding(QUICK, "server.freeze()")) as parent:
        parent.signal(signal.SIGKILL)

        parent.leaves_nothing()


def test_a_fork_that_holds_the_pipe_open_does_not_keep_the_server_alive() -> None:
    fork = 'said["fork"] = os.fork() or (signal.alarm(60), signal.pause())'
    with script(holding(QUICK, fork)) as parent:
        fork_pid = int(parent.said["fork"])
        servers = [pid for pid in parent.family if pid != fork_pid]

        parent.signal(signal.SIGKILL)

        until(lambda: not alive(servers), "end of the server")
        os.kill(fork_pid, signal.SIGKILL)
        parent.leaves_nothing()


@pytest.mark.faults
@pytest.mark.servers("rabbitmq")
def test_the_port_mapper_of_rabbitmq_does_not_outlive_a_killed_parent() -> None:
    with script(holding("RabbitMq()")) as parent:
        parent.signal(signal.SIGKILL)

        parent.leaves_nothing()


def test_a_server_that_nobody_stopped_ends_with_the_interpreter() -> None:
    with script(UNCLOSED) as parent:
        parent.say("\n")
        parent.process.wait(30)

        parent.leaves_nothing()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's end")
def test_a_server_does_not_outlive_its_guardian() -> None:
    with Postgres(settings={"fsync": "off"}) as server:
        pid, folder = server.pid, server.folder

        os.kill(server._owned._process.pid, signal.SIGKILL)

        until(lambda: not alive([pid]), "end of the server")
        assert folder.exists()
    assert not folder.exists()
