import asyncio
import socket

import aio_pika
import nats
import pytest

from pillarbox.servers import Kafka, Nats, Pulsar, RabbitMq, Redis, Server
from pillarbox.servers.guardian import descendants
from pillarbox.servers.kafka import cluster_id
from tests.support.kafka_admin import make_topic
from tests.support.processes import alive

confluent_kafka = pytest.importorskip("confluent_kafka")
pulsar = pytest.importorskip("pulsar")


def say(server: Server, words: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(words)
        return connection.recv(4096)


@pytest.mark.servers("redis")
def test_redis_keeps_a_value_over_a_kill_and_is_mute_while_frozen() -> None:
    with Redis() as server:
        assert say(server, b"SET kept 1\r\n") == b"+OK\r\n"

        server.kill()
        server.restart()
        assert say(server, b"GET kept\r\n") == b"$1\r\n1\r\n"

        server.freeze()
        with socket.create_connection(("127.0.0.1", server.port), timeout=0.2) as connection:
            connection.sendall(b"PING\r\n")
            with pytest.raises(TimeoutError):
                connection.recv(16)
            server.thaw()
            connection.settimeout(10)
            assert connection.recv(16) == b"+PONG\r\n"


@pytest.mark.servers("nats")
async def test_nats_keeps_an_acknowledged_message_over_a_kill() -> None:
    with Nats() as server:
        client = await nats.connect(server.url)
        stream = client.jetstream()
        await stream.add_stream(name="kept", subjects=["kept.>"])
        await stream.publish("kept.one", b"1")
        await client.close()

        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.restart)

        client = await nats.connect(server.url)
        message = await client.jetstream().get_msg("kept", 1)
        await client.close()
        assert message.data == b"1"


@pytest.mark.faults
@pytest.mark.servers("rabbitmq")
async def test_rabbitmq_keeps_a_message_over_a_kill_and_takes_its_port_mapper_along() -> None:
    with RabbitMq() as server:
        async with await aio_pika.connect(server.url) as connection:
            channel = await connection.channel(publisher_confirms=True)
            await channel.declare_queue("kept", durable=True)
            message = aio_pika.Message(b"1", delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
            await channel.default_exchange.publish(message, routing_key="kept")

        # The server answers a declaration up to two seconds before it is on the disk.
        await asyncio.to_thread(server.control, "eval", "mnesia:sync_log().")
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.restart)

        async with await aio_pika.connect(server.url) as connection:
            queue = await (await connection.channel()).get_queue("kept")
            assert (await queue.get(no_ack=True, timeout=10)).body == b"1"
        family = descendants(server._owned._process.pid)
    assert not alive(family)


def test_the_id_of_a_kafka_cluster_never_looks_like_an_option() -> None:
    identities = [cluster_id(bytes([first]) + bytes(15)) for first in range(256)]

    assert all(identity[0].isalpha() for identity in identities)
    assert {len(identity) for identity in identities} == {22}


@pytest.mark.faults
@pytest.mark.servers("kafka")
def test_kafka_keeps_a_message_over_a_kill() -> None:
    with Kafka() as server:
        make_topic(server.bootstrap, "kept")
        producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap})
        producer.produce("kept", b"1")
        assert producer.flush(20) == 0

        server.kill()
        server.restart()

        settings = {"bootstrap.servers": server.bootstrap, "group.id": "g"}
        consumer = confluent_kafka.Consumer(settings)
        consumer.assign([confluent_kafka.TopicPartition("kept", 0, 0)])
        message = consumer.poll(20)
        consumer.close()
        assert message.value() == b"1"


@pytest.mark.faults
@pytest.mark.servers("pulsar")
def test_pulsar_keeps_a_message_over_a_kill() -> None:
    with Pulsar() as server:
        logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        client = pulsar.Client(server.url, logger=logger)
        client.create_producer("kept").send(b"1")
        client.close()

        server.kill()
        server.restart()

        client = pulsar.Client(server.url, logger=logger)
        message = client.create_reader("kept", pulsar.MessageId.earliest).read_next(20_000)
        client.close()
        assert message.data() == b"1"
