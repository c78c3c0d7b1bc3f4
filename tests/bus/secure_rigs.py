"""Brokers that ask for TLS, a client's certificate and a login, each with its bus and a reader."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import confluent_kafka
import nats
import nats.js.errors
import redis.asyncio
from redis.credentials import CredentialProvider

from pillarbox.bus.kafka import KafkaMessageBus
from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.nats import NatsMessageBus
from pillarbox.bus.redis import RedisMessageBus
from pillarbox.servers import Kafka, Login, Nats, Redis, TlsFiles
from pillarbox.servers.ports import LOOPBACK
from tests.bus.secure import Papers, SecureRig


class NatsSecureRig:
    greets = True

    def server(self, tls: TlsFiles, login: Login) -> Nats:
        return Nats(tls=tls, login=login)

    def bus(self, port: int, papers: Papers, *, limit: timedelta) -> MessageBus:
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
    return {
        "tls": papers.context(),
        "user": lambda: papers.login().user,
        "password": lambda: papers.login().password,
    }


@dataclass(frozen=True, slots=True)
class _RedisLogin(CredentialProvider):
    papers: Papers

    def get_credentials(self) -> tuple[str, str]:
        login = self.papers.login()
        return login.user, login.password


class RedisSecureRig:
    greets = False

    def server(self, tls: TlsFiles, login: Login) -> Redis:
        return Redis(tls=tls, login=login)

    def bus(self, port: int, papers: Papers, *, limit: timedelta) -> MessageBus:
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
    if papers.client is not None:
        made["ssl_certfile"] = str(papers.client.certificate)
        made["ssl_keyfile"] = str(papers.client.key)
    return made


class KafkaSecureRig:
    greets = False

    def server(self, tls: TlsFiles, login: Login) -> Kafka:
        return Kafka(tls=tls, login=login)

    def bus(self, port: int, papers: Papers, *, limit: timedelta) -> MessageBus:
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
    if papers.client is not None:
        made["ssl.certificate.location"] = str(papers.client.certificate)
        made["ssl.key.location"] = str(papers.client.key)
    return made


SECURE_RIGS: Final[Mapping[str, SecureRig]] = {
    "nats": NatsSecureRig(),
    "redis": RedisSecureRig(),
    "kafka": KafkaSecureRig(),
}
