"""Ways to log in beside those of `test_tls`: each opens with the right secret and with no other."""

import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import nats
import pytest
from confluent_kafka import admin as untyped_admin
from nats.js.errors import NotFoundError

from pillarbox.bus.kafka import KafkaMessageBus
from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.nats import NatsMessageBus
from pillarbox.bus.outcome import ACCEPTED, Unavailable
from pillarbox.errors import BusUnreachable
from pillarbox.servers import Nats
from tests.bus.closed_nats import ClosedNats
from tests.bus.nkey import from_seed, new_seed, nkeys
from tests.bus.rig import message, new_topic
from tests.bus.rig_kafka import KafkaRig
from tests.support.brokers import LinedKafka
from tests.support.kafka_admin import TRY_SECONDS, tell
from tests.support.waiting import until

__all__ = ["nkeys"]

LIMIT = timedelta(seconds=3)
SLACK = 1.0  # for a busy machine
USER = "alice"
RIGHT, WRONG = "first-s3cret", "wrong-s3cret"
RIGHT_SEED, WRONG_SEED = new_seed(bytes(range(32))), new_seed(bytes(range(1, 33)))

_admin: Any = untyped_admin


@dataclass(frozen=True, slots=True)
class Door:
    """A broker that asks for a secret, and a bus that reads it from a file."""

    right: str
    wrong: str
    secret: Path
    bus: Callable[[], MessageBus]
    count: Callable[[str], Awaitable[int]]

    def show(self, secret: str) -> None:
        self.secret.write_text(secret)


def nats_door(server: Nats, secret: Path, right: str, wrong: str, options: dict[str, Any]) -> Door:
    def bus() -> MessageBus:
        return NatsMessageBus(server.url, options=options, publish_timeout=LIMIT)

    async def count(topic: str) -> int:
        client = await nats.connect(server.url, **options)
        try:
            info = await client.jetstream().stream_info(topic.partition(".")[0])
        except NotFoundError:
            return 0
        finally:
            await client.close()
        return info.state.messages

    return Door(right, wrong, secret, bus, count)


@pytest.fixture
def nats_token(secret: Path) -> Iterator[Door]:
    with ClosedNats(f"token: {json.dumps(RIGHT)}") as server:
        yield nats_door(server, secret, RIGHT, WRONG, {"token": secret.read_text})


@pytest.fixture
def nats_nkey(secret: Path, nkeys: None) -> Iterator[Door]:
    public = from_seed(RIGHT_SEED.encode()).public_key.decode()
    with ClosedNats(f"users: [{{ nkey: {public} }}]") as server:
        yield nats_door(server, secret, RIGHT_SEED, WRONG_SEED, {"nkeys_seed": str(secret)})


@pytest.fixture
def kafka_scram(secret: Path, kafka_server: LinedKafka) -> Door:
    mechanism = _admin.ScramCredentialInfo(_admin.ScramMechanism.SCRAM_SHA_512, 4096)
    user = _admin.UserScramCredentialUpsertion(USER, mechanism, RIGHT.encode())

    def change(client: Any) -> None:
        client.alter_user_scram_credentials([user])[USER].result(TRY_SECONDS)

    tell(kafka_server.bootstrap, change)

    def bus() -> MessageBus:
        return KafkaMessageBus(
            kafka_server.scram,
            settings={"security.protocol": "sasl_plaintext", "sasl.mechanism": "SCRAM-SHA-512"},
            credentials=lambda: (USER, secret.read_text()),
            publish_timeout=LIMIT,
        )

    async def count(topic: str) -> int:
        return len(await KafkaRig(kafka_server).read(topic))

    return Door(RIGHT, WRONG, secret, bus, count)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    return tmp_path / "secret"


@pytest.fixture(
    params=[
        pytest.param("nats_token", marks=pytest.mark.servers("nats")),
        pytest.param("nats_nkey", marks=pytest.mark.servers("nats")),
        pytest.param("kafka_scram", marks=pytest.mark.servers("kafka")),
    ]
)
def door(request: pytest.FixtureRequest) -> Door:
    """Each way in turn."""
    found: Door = request.getfixturevalue(request.param)
    return found


async def test_the_right_secret_opens(door: Door) -> None:
    topic, bus = new_topic(), door.bus()
    door.show(door.right)

    await bus.start()
    outcomes = await bus.publish([message(topic, n) for n in range(3)])
    await bus.close()

    assert outcomes == [ACCEPTED] * 3
    assert await door.count(topic) == 3


async def test_a_wrong_secret_is_refused_until_it_is_put_right(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    topic, other, bus = new_topic(), new_topic(), door.bus()
    begun = time.monotonic()
    door.show(door.wrong)

    with pytest.raises(BusUnreachable) as refused:
        await bus.start()
    outcomes = await bus.publish([message(topic, n) for n in range(3)])
    took = time.monotonic() - begun
    door.show(door.right)

    async def accepted() -> bool:
        return list(await bus.publish([message(other)])) == [ACCEPTED]

    await until(accepted, "the new secret is read", 30)
    await bus.close()

    assert [type(outcome) for outcome in outcomes] == [Unavailable] * 3
    assert {outcome.topic for outcome in outcomes if isinstance(outcome, Unavailable)} == {None}
    assert took <= 2 * LIMIT.total_seconds() + SLACK
    assert door.wrong not in "".join((str(refused.value), repr(outcomes), caplog.text))
    assert (await door.count(topic), await door.count(other)) == (0, 1)
