"""The demo as a person starts it."""

import re
import subprocess
import sys
import time
from collections.abc import Mapping

import pytest

from examples.demo.crew import ROOT

LAST_LINE = re.compile(
    r"orders=[1-9]\d* events=[1-9]\d* delivered=[1-9]\d* effects=[1-9]\d* kills=[1-9]\d* "
    r"outages=[1-9]\d* repeated_requests=[1-9]\d* repeated_messages=[1-9]\d* lost=0 "
    r"duplicate_effects=0 out_of_order=0 seconds_to_first_event=(\d+\.\d)"
)
TOOK = re.compile(r"from the first order to this count it took (\d+\.\d) s")


def demo(environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "examples.demo"]
    return subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False, timeout=240
    )


@pytest.mark.faults
@pytest.mark.servers("postgres18", "nats")
@pytest.mark.timeout(300)
def test_in_thirty_seconds_kills_repetitions_and_an_outage_leave_every_order_ended_once() -> None:
    begun = time.time()
    ended = demo({"PILLARBOX_DEMO_SECONDS": "30", "PILLARBOX_DEMO_STARTED": str(begun)})

    assert ended.returncode == 0, ended.stderr
    last = LAST_LINE.fullmatch(ended.stdout.strip())
    took = TOOK.search(ended.stderr)
    assert last is not None, ended.stdout
    assert took is not None, ended.stderr
    assert "it stays down for 10 s" in ended.stderr
    assert float(took[1]) <= 30.0, ended.stderr
    assert float(last[1]) <= 15.0, ended.stderr


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"PILLARBOX_DEMO_SECONDS": "3"}, "PILLARBOX_DEMO_SECONDS is 3"),
        (
            {
                "PILLARBOX_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none",
                "PILLARBOX_BUS_URL": "nats://127.0.0.1:1",
            },
            "the database cannot be used",
        ),
    ],
)
def test_what_cannot_be_is_said_in_one_sentence(environ: dict[str, str], said: str) -> None:
    ended = demo(environ)

    assert ended.returncode == 1
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "logs" not in ended.stderr  # nothing was started, so there are none
