"""Brokers with a user whose right to publish to a topic can be taken away, and given back."""

import asyncio
import http.client
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import nats
import pulsar
import pytest
from redis.asyncio import Redis as Client

from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.nats import NatsMessageBus
from pillarbox.bus.pulsar import PulsarMessageBus
from pillarbox.bus.redis import RedisMessageBus
from pillarbox.servers import Login, Pulsar, RabbitMq, Redis
from pillarbox.servers.ports import LOOPBACK
from pillarbox.servers.pulsar import token_for
from pillarbox.testing import Stored
from tests.bus.closed_nats import ClosedNats
from tests.bus.rig import LIMIT
from tests.bus.rig_kafka import KafkaRig
from tests.bus.rig_nats import read_stream
from tests.bus.rig_pulsar import quiet_client, read_topic, stored
from tests.bus.rig_rabbitmq import RabbitMqRig, control, quick_bus
from tests.bus.rig_redis import RedisRig

OWNER: Final = Login("alice", "first-s3cret")
USER: Final = Login("bob", OWNER.password)
EXCHANGE: Final = "events"
ADMIN_SECONDS: Final = 20


class RightsRig(Protocol):
    """Make buses of a user, who may publish to a topic, or may not."""

    @property
    def name(self) -> str: ...

    def bus(self, *, limit: timedelta = LIMIT) -> MessageBus: ...

    async def grant(self, topic: str) -> None:
        """Let in the user, who may publish to a new topic."""
        ...

    async def forbid(self, topic: str) -> None:
        """Take the right away; connections that stand may heed it a moment later."""
        ...

    async def permit(self, topic: str) -> None:
        """Give the right back."""
        ...

    async def read(self, topic: str) -> list[Stored]: ...


class KafkaRights(KafkaRig):
    """Kafka with a rule for the topic."""

    async def grant(self, topic: str) -> None:
        """Do nothing: without a rule everybody may do everything."""


@dataclass(frozen=True, slots=True)
class NatsRights:
    """NATS, which reads its users again."""

    server: ClosedNats
    name: str = "nats"

    def bus(self, *, limit: timedelta = LIMIT) -> MessageBus:
        return NatsMessageBus(self.server.url, options=_nats(USER), publish_timeout=limit)

    async def grant(self, topic: str) -> None:
        """Do nothing: the user may do everything."""

    async def forbid(self, topic: str) -> None:
        self.server.change_rule(nats_users(topic))

    async def permit(self, topic: str) -> None:
        del topic
        self.server.change_rule(nats_users())

    async def read(self, topic: str) -> list[Stored]:
        return await read_stream(await nats.connect(self.server.url, **_nats(OWNER)), topic)


def nats_users(*denied: str) -> str:
    """Return a rule by which one user may do everything, and the other may not publish to some."""
    users = [
        {"user": OWNER.user, "password": OWNER.password},
        {
            "user": USER.user,
            "password": USER.password,
            "permissions": {"publish": {"deny": [*denied]}},
        },
    ]
    return f"users: {json.dumps(users)}"


def _nats(login: Login) -> dict[str, Any]:
    return {"user": login.user, "password": login.password}


class RabbitMqRights(RabbitMqRig):
    """RabbitMQ with topic permissions."""

    def bus(self, *, limit: timedelta = LIMIT, address: str | None = None) -> MessageBus:
        where = address or f"{LOOPBACK}:{self.server.port}"
        return quick_bus(f"amqp://{USER.user}:{USER.password}@{where}/", publish_timeout=limit)

    async def grant(self, topic: str) -> None:
        del topic
        await control(self.server, "add_user", USER.user, USER.password)
        await control(self.server, "set_permissions", USER.user, ".*", ".*", ".*")

    async def forbid(self, topic: str) -> None:
        rule = (USER.user, EXCHANGE, f"^(?!{topic}$)", ".*")
        await control(self.server, "set_topic_permissions", *rule)
        # A channel asks once whether it may publish to a topic, and remembers the answer.
        await control(self.server, "close_all_user_connections", USER.user, "a right is removed")

    async def permit(self, topic: str) -> None:
        del topic
        await control(self.server, "clear_topic_permissions", USER.user, EXCHANGE)


class RedisRights(RedisRig):
    """Redis with a user who may write some keys."""

    def bus(self, *, limit: timedelta = LIMIT, address: str | None = None) -> MessageBus:
        where = address or f"{LOOPBACK}:{self.server.port}"
        url = f"redis://{USER.user}:{USER.password}@{where}/0"
        return RedisMessageBus(url, publish_timeout=limit)

    async def grant(self, topic: str) -> None:
        del topic
        await self._set_user("on", f">{USER.password}", "~*", "+@all")

    async def forbid(self, topic: str) -> None:
        del topic
        await self._set_user("resetkeys", "%R~*", "~other.*")

    async def permit(self, topic: str) -> None:
        del topic
        await self._set_user("~*")

    async def _set_user(self, *rules: str) -> None:
        untyped: Any = Client.from_url(self.server.url)
        async with untyped as client:
            await client.execute_command("ACL", "SETUSER", USER.user, *rules)


@dataclass(frozen=True, slots=True)
class PulsarRights:
    """Pulsar with rights to topics, for users who show tokens."""

    server: Pulsar
    name: str = "pulsar"

    def bus(self, *, limit: timedelta = LIMIT) -> MessageBus:
        shown = pulsar.AuthenticationToken(token_for(USER))
        options = {"authentication": shown}
        return PulsarMessageBus(self.server.url, options=options, publish_timeout=limit)

    async def grant(self, topic: str) -> None:
        # To look around in the namespace is a right of those who may do anything there.
        await self._ask("POST", f"namespaces/public/default/permissions/{USER.user}", ["consume"])
        await self._ask("PUT", f"persistent/public/default/{topic}")
        await self.permit(topic)

    async def forbid(self, topic: str) -> None:
        await self._ask("DELETE", f"persistent/public/default/{topic}/permissions/{USER.user}")

    async def permit(self, topic: str) -> None:
        path = f"persistent/public/default/{topic}/permissions/{USER.user}"
        await self._ask("POST", path, ["produce"])

    async def read(self, topic: str) -> list[Stored]:
        shown = pulsar.AuthenticationToken(self.server.token)
        client = quiet_client(self.server, authentication=shown)
        return [stored(found) for found in await asyncio.to_thread(read_topic, client, topic)]

    async def _ask(self, method: str, path: str, body: list[str] | None = None) -> None:
        await asyncio.to_thread(_ask, self.server, method, path, body)


def _ask(server: Pulsar, method: str, path: str, body: list[str] | None) -> None:
    connection = http.client.HTTPConnection(
        urlsplit(server.admin_url).netloc, timeout=ADMIN_SECONDS
    )
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {server.token}"}
    try:
        content = None if body is None else json.dumps(body)
        connection.request(method, f"/admin/v2/{path}", content, headers)
        answer = connection.getresponse()
        assert answer.status in {200, 204}, answer.read()
    finally:
        connection.close()


@contextmanager
def rights_rigs(request: pytest.FixtureRequest) -> Iterator[list[RightsRig]]:
    """Yield all brokers at once: those that all tests share where users can be added."""
    kept = {"defaultRetentionTimeInMinutes": 600, "defaultRetentionSizeInMB": -1}
    with ExitStack() as stack:
        closed = stack.enter_context(ClosedNats(nats_users()))
        guarded = stack.enter_context(Pulsar(login=OWNER, settings=kept))
        rabbitmq: RabbitMq = request.getfixturevalue("rabbitmq_server")
        redis: Redis = request.getfixturevalue("redis_server")
        stack.callback(rabbitmq.control, "delete_user", USER.user)
        yield [
            KafkaRights(request.getfixturevalue("kafka_server")),
            NatsRights(closed),
            RabbitMqRights(rabbitmq),
            RedisRights(redis),
            PulsarRights(guarded),
        ]
