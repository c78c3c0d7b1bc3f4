"""A model is built again from the log of a real broker, whose word ends it."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from pillarbox import Pillarbox
from pillarbox.bus.kafka import KafkaMessageBus
from pillarbox.bus.nats import NatsMessageBus
from pillarbox.bus.outcome import ACCEPTED
from pillarbox.bus.pulsar import PulsarMessageBus
from pillarbox.bus.redis import RedisMessageBus
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.readmodel.config import ReadModelConfig
from pillarbox.readmodel.progress import Progress
from pillarbox.testing import new_topic
from tests.readmodel.rig import Accounts, Rig
from tests.support.database import on

BUSES: Final[dict[str, Callable[[Any], Any]]] = {
    "kafka": lambda server: KafkaMessageBus(server.bootstrap, partitions=3),
    "nats": lambda server: NatsMessageBus(server.url),
    "pulsar": lambda server: PulsarMessageBus(server.url, admin_url=server.admin_url, partitions=3),
    "redis": lambda server: RedisMessageBus(server.url),
}


def deposit(topic: str, number: int) -> MessageEnvelope:
    account = f"a{number % 10}"
    return MessageEnvelope(
        event_id=f"{topic}-{number}", event_type="Deposited", topic=topic, key=account,
        payload={"account_id": account, "cents": number},
    )  # fmt: skip


@on("postgres18+asyncpg")
@pytest.mark.parametrize("broker", BUSES)
async def test_all_that_the_broker_has_is_in_the_table_that_goes_live(
    rig: Rig, broker: str, request: pytest.FixtureRequest
) -> None:
    """A group that shares its partitions after seconds once left the table empty."""
    bus, topic = BUSES[broker](request.getfixturevalue(f"{broker}_server")), new_topic()
    await bus.start()
    await bus.apply([topic])
    batch = [deposit(topic, number) for number in range(100)]
    box = Pillarbox(rig.database.engine, bus, service="bank", environ={})
    model = box.read_model(Accounts, topics=[topic], config=ReadModelConfig(history="kept"))
    await model.drain()
    outcomes = await bus.publish(batch)
    told: list[Progress] = []

    await model.rebuild(report=told.append)
    await bus.close()

    assert list(outcomes) == [ACCEPTED] * 100
    assert sum((await rig.cents()).values()) == sum(range(100))
    filled = [(step.position, step.target) for step in told if step.phase == "filling"]
    assert (filled[-1], told[-1].phase, told[-1].share) == ((100, 100), "done", 1.0)
