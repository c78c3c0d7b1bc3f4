"""`pillarbox bus apply`: what is missing is made, once."""

from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result

from pillarbox.cli.main import main
from pillarbox.servers import Nats, RabbitMq
from tests.bus.rig import new_topic


def run(url: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["bus", "apply", *arguments], env={"PILLARBOX_BUS_URL": url})


APP = """
from pillarbox import Pillarbox
from pillarbox.bus.{kind} import {name}

box = Pillarbox("sqlite+aiosqlite://", {name}({url!r}), service="payments")
box.consumer("{consumer}", topics=["{topic}"])
"""


def run_with_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **words: str) -> Result:
    module = f"app_{uuid4().hex}"
    (tmp_path / f"{module}.py").write_text(APP.format(**words))
    monkeypatch.syspath_prepend(tmp_path)
    return run("", "--app", f"{module}:box")


def test_the_queues_of_an_applications_consumers_are_made_on_rabbitmq(
    rabbitmq_server: RabbitMq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, consumer = new_topic(), f"c{uuid4().hex}"
    words = {"kind": "rabbitmq", "name": "RabbitMQMessageBus", "url": rabbitmq_server.url}
    words |= {"topic": topic, "consumer": consumer}

    first, second = (run_with_app(tmp_path, monkeypatch, **words) for _ in range(2))

    assert (first.exit_code, first.output) == (0, f"made {consumer}.{topic}\n")
    assert (second.exit_code, second.output) == (0, "nothing was missing\n")


def test_a_stream_for_the_topics_of_an_applications_consumers_is_made(
    nats_server: Nats, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = {"kind": "nats", "name": "NatsMessageBus", "url": nats_server.url}
    words |= {"topic": (topic := new_topic()), "consumer": "payments"}

    result = run_with_app(tmp_path, monkeypatch, **words)

    assert (result.exit_code, result.output) == (0, f"made {topic.partition('.')[0]}\n")


def test_neither_topics_nor_consumers_is_a_mistake() -> None:
    result = run("memory://")

    assert result.exit_code == 1
    assert "topics are not named; name topics" in result.output


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
