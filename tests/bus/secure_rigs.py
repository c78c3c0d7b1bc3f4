"""Brokers that ask for TLS, a client's certificate and a login, each with its bus and a reader."""

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import aio_pika
import aio_pika.exceptions
import confluent_kafka
import nats
import nats.js.errors
import pulsar
import redis.asyncio
from redis.credentials import CredentialProvider

from pillarbox.bus.kafka import KafkaMessageBus
from pillarbox.bus.nats import NatsMessageBus
from pillarbox.bus.pulsar import PulsarMessageBus
from pillarbox.bus.rabbitmq import RabbitMQMessageBus
from pillarbox.bus.redis import RedisMessageBus
from pillarbox.servers import Kafka, Login, Nats, Pulsar, RabbitMq, Redis, TlsFiles
from pillarbox.servers.ports import LOOPBACK
from pillarbox.servers.pulsar import token_for
from tests.bus.secure import ListenedTo, Papers, SecureRig


def _asked(papers: Papers) -> dict[str, Callable[[], str]]:
    return {"user": lambda: papers.login().user, "password": lambda: papers.login().password}


class NatsSecureRig:
    greets = True
    tells_why = True

    def server(self, tls: TlsFiles, login: Login) -> Nats:
        return Nats(tls=tls, login=login)

    def bus(self, port: int, papers: Papers, *, limit: timedelta) -> ListenedTo:
        return NatsMessageBus(
            f"tls://{LOOPBACK}:{port}", options=_nats(papers), publish_timeout=limit
        )

    async def count(self, port: int, papers: Papers, topic: str) -> int:
        client = await nats.connect(f"tls://{LOOPBACK}:{port}", **_nats(papers))
        try:
            info = await client.jetstream().stream_info(topic.partition(".")[0])
        except nats.js.errors.NotFoundError:
            return 0
        finally:
            await client.close()
        return info.state.messages


def _nats(papers: Papers) -> dict[str, Any]:
    return {"tls": papers.context(), **_asked(papers)}


@dataclass(frozen=True, slots=True)
class _RedisLogin(CredentialProvider):
    papers: Papers

    def get_credentials(self) -> tuple[str, str]:
        login = self.papers.login()
        return login.user, login.password


class RedisSecureRig:
    greets = False
    tells_why = True

    def server(self, tls: TlsFiles, login: Login) -> Redis:
        return Redis(tls=tls, login=login)

    def bus(self, port: int, papers: Papers, *, limit: timedelta) -> ListenedTo:
        url = f"rediss://{LOOPBACK}:{port}/0"
        return RedisMessageBus(url, options=_redis(papers), publish_timeout=limit)

    async def count(self, port: int, papers: Papers, topic: str) -> int:
        client = redis.asyncio.Redis.from_url(f"rediss://{LOOPBACK}:{port}/0", **_redis(papers))
        try:
            return int(await client.xlen(topic))
        finally:
            await client.aclose()


def _redis(papers: Papers) -> dict[str, Any]:
    made: dict[str, Any] = {"credential_provider": _RedisLogin(papers)}
    if papers.authority is not None:
        made["ssl_ca_certs"] = str(papers.authority)
    if papers.careless:
        made |= {"ssl_cert_reqs": "none", "ssl_check_hostname": False}
    if papers.client is not None:
        made["ssl_certfile"] = str(papers.client.certificate)
        made["ssl_keyfile"] = str(papers.client.key)
    return made


class KafkaSecureRig:
    greets = False
    tells_why = True

    def server(self, tls: TlsFiles, login: Login) -> Kafka:
        return Kafka(tls=tls, login=login)

    def bus(self, port: int, papers: Papers, *, limit: timedelta) -> ListenedTo:
        def credentials() -> tuple[str, str]:
            login = papers.login()
            return login.user, login.password

        return KafkaMessageBus(
            f"{LOOPBACK}:{port}",
            settings=_kafka(papers),
            credentials=credentials,
            publish_timeout=limit,
        )

    async def count(self, port: int, papers: Papers, topic: str) -> int:
        return await asyncio.to_thread(self._count, port, papers, topic)

    def _count(self, port: int, papers: Papers, topic: str) -> int:
        login = papers.login()
        consumer: Any = confluent_kafka.Consumer(
            {
                **_kafka(papers),
                "bootstrap.servers": f"{LOOPBACK}:{port}",
                "sasl.username": login.user,
                "sasl.password": login.password,
                "group.id": "reader",
            }
        )
        try:
            found = consumer.list_topics(topic, 20).topics[topic].partitions
            places = [confluent_kafka.TopicPartition(topic, place) for place in found]
            return sum(consumer.get_watermark_offsets(place, 20)[1] for place in places)
        finally:
            consumer.close()


def _kafka(papers: Papers) -> dict[str, str]:
    made = {"security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN"}
    if papers.authority is not None:
        made["ssl.ca.location"] = str(papers.authority)
    if papers.careless:
        made["enable.ssl.certificate.verification"] = "false"
    if papers.client is not None:
        made["ssl.certificate.location"] = str(papers.client.certificate)
        made["ssl.key.location"] = str(papers.client.key)
    return made


class RabbitMqSecureRig:
    greets = False
    tells_why = True

    def server(self, tls: TlsFiles, login: Login) -> RabbitMq:
        return RabbitMq(tls=tls, login=login)

    def bus(self, port: int, papers: Papers, *, limit: timedelta) -> ListenedTo:
        return RabbitMQMessageBus(
            f"amqps://{LOOPBACK}:{port}/",
            options={"context": papers.context(), **_asked(papers)},
            publish_timeout=limit,
        )

    async def count(self, port: int, papers: Papers, topic: str) -> int:
        login = papers.login()
        url = f"amqps://{login.user}:{login.password}@{LOOPBACK}:{port}/"
        connection = await aio_pika.connect(url, ssl_context=papers.context())
        async with connection:
            try:
                queue = await (await connection.channel()).get_queue(topic)
            except aio_pika.exceptions.ChannelNotFoundEntity:
                return 0
            taken = 0
            while await queue.get(no_ack=True, fail=False) is not None:
                taken += 1
            return taken


class PulsarSecureRig:
    greets = False
    tells_why = False

    def server(self, tls: TlsFiles, login: Login) -> Pulsar:
        return Pulsar(tls=tls, login=login)

    def bus(self, port: int, papers: Papers, *, limit: timedelta) -> ListenedTo:
        url = f"pulsar+ssl://{LOOPBACK}:{port}"
        return PulsarMessageBus(url, options=_pulsar(papers), publish_timeout=limit)

    async def count(self, port: int, papers: Papers, topic: str) -> int:
        return await asyncio.to_thread(self._count, port, papers, topic)

    def _count(self, port: int, papers: Papers, topic: str) -> int:
        logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
        url = f"pulsar+ssl://{LOOPBACK}:{port}"
        client = pulsar.Client(url, logger=logger, **_pulsar(papers))
        try:
            reader = client.create_reader(topic, pulsar.MessageId.earliest)
            taken = 0
            while reader.has_message_available():
                reader.read_next(20_000)
                taken += 1
            return taken
        finally:
            client.close()


def _pulsar(papers: Papers) -> dict[str, Any]:
    def token() -> str:
        return token_for(papers.login())

    made: dict[str, Any] = {"authentication": pulsar.AuthenticationToken(token)}
    if papers.authority is not None:
        made["tls_trust_certs_file_path"] = str(papers.authority)
    if papers.careless:
        made |= {"tls_allow_insecure_connection": True, "tls_validate_hostname": False}
    if papers.client is not None:
        made["tls_certificate_file_path"] = str(papers.client.certificate)
        made["tls_private_key_file_path"] = str(papers.client.key)
    return made


SECURE_RIGS: Final[Mapping[str, SecureRig]] = {
    "nats": NatsSecureRig(),
    "redis": RedisSecureRig(),
    "kafka": KafkaSecureRig(),
    "rabbitmq": RabbitMqSecureRig(),
    "pulsar": PulsarSecureRig(),
}
