"""`pillarbox bus apply`: what is missing is made, once."""

import pytest
from click.testing import CliRunner, Result

from pillarbox.cli.main import main
from pillarbox.servers import Nats
from tests.bus.rig import new_topic


def run(url: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["bus", "apply", *arguments], env={"PILLARBOX_BUS_URL": url})


def test_what_is_missing_is_made_once_and_named(nats_server: Nats) -> None:
    topic = new_topic()

    first, second = run(nats_server.url, topic), run(nats_server.url, topic)

    assert (first.exit_code, first.output) == (0, f"made {topic.partition('.')[0]}\n")
    assert (second.exit_code, second.output) == (0, "nothing was missing\n")


@pytest.mark.parametrize(
    ("url", "topic", "problem"),
    [
        ("", "shop.order", "PILLARBOX_BUS_URL is not set"),
        ("memory://", "shop.*", "topic"),
        ("nats://127.0.0.1:1", "shop.order", "nats://127.0.0.1"),
    ],
)
def test_what_cannot_work_is_one_line(url: str, topic: str, problem: str) -> None:
    result = run(url, topic)

    assert result.exit_code == 1
    assert problem in result.output
    assert result.output.startswith("Error: ")
    assert len(result.output.splitlines()) == 1
