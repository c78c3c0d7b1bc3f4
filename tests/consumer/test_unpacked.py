"""Messages that a broker's client unpacks: what is too large then is parked, and the rest goes on."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import confluent_kafka
import pulsar
import pytest
from sqlalchemy import func, select

from pillarbox.schema.tables import inbox_parked
from pillarbox.testing.subscription.case import new_request
from tests.bus.rig_pulsar import quiet_client
from tests.bus.subscription_rigs import RIGS
from tests.consumer.rig import Counting, Shop
from tests.consumer.test_on_brokers import LIMIT, loop_of
from tests.support.database import on
from tests.support.waiting import until

pytestmark = on("postgres18+psycopg")

LARGE: Final = 17 * 1_048_576
BODIES: Final[Mapping[str, bytes]] = {
    "small": b'{"n":1}',
    "bomb": b'{"n":2,"more":"' + b"x" * LARGE + b'"}',
    "small too": b'{"n":3}',
}


def send_to_kafka(server: Any, topic: str) -> None:
    """Publish all as zstd: the broker has some kilobytes of each."""
    settings = {
        "bootstrap.servers": server.bootstrap,
        "compression.type": "zstd",
        "message.max.bytes": 2 * LARGE,
        "enable.idempotence": True,  # else a first try that fails lets the others pass
    }
    producer: Any = confluent_kafka.Producer(settings)
    for message_id, body in BODIES.items():
        told = [("event_id", message_id), ("event_type", "OrderCreated")]
        producer.produce(topic, body, b"k", 0, headers=told)
    assert producer.flush(20) == 0


def send_to_pulsar(server: Any, topic: str) -> None:
    client = quiet_client(server)
    try:
        producer = client.create_producer(
            f"{topic}-partition-0",
            batching_enabled=False,
            compression_type=pulsar.CompressionType.ZSTD,
        )
        for message_id, body in BODIES.items():
            told = {"event_id": message_id, "event_type": "OrderCreated"}
            producer.send(body, properties=told, partition_key="k")
    finally:
        client.close()


SENDERS: Final[Mapping[str, Callable[[Any, str], None]]] = {
    "kafka": send_to_kafka,
    "pulsar": send_to_pulsar,
}


@pytest.mark.parametrize("name", SENDERS)
async def test_a_compressed_message_that_unpacks_beyond_the_limit_is_parked_as_too_large(
    shop: Shop, request: pytest.FixtureRequest, name: str
) -> None:
    server = request.getfixturevalue(f"{name}_server")
    broker, wanted, seen = RIGS[name](server), new_request(), Counting()
    await broker.prepare(wanted)
    await asyncio.to_thread(SENDERS[name], server, wanted.topics[0])

    async def all_ended() -> bool:
        return sum(seen.outcomes.values()) == len(BODIES)

    async with shop.running(loop_of(shop, broker, wanted, seen, batch=10)):
        await until(all_ended, "all have ended", LIMIT)

    assert await shop.effects() == ["small", "small too"]
    columns = inbox_parked.c
    query = select(columns.reason, columns.error_message, func.length(columns.body))
    async with shop.database.engine.connect() as connection:
        rows = [tuple(row) for row in await connection.execute(query)]
    size = len(BODIES["bomb"])
    assert rows == [("too-large", f"the body has {size:,} bytes > 16,777,216", size)]
