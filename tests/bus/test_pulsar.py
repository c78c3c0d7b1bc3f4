"""What only Pulsar does: batches by groups of keys, its namespaces, its limits."""

import asyncio
import http.client
import json
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pulsar
import pytest

from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.outcome import ACCEPTED, Accepted, PublishOutcome, Refused, Unavailable
from pillarbox.bus.pulsar import PulsarMessageBus
from pillarbox.errors import InvalidConfig
from pillarbox.servers import Pulsar
from tests.bus.rig import ids, message, new_topic
from tests.bus.rig_pulsar import TOO_LARGE, PulsarRig, quiet_client
from tests.support.brokers import LinedPulsar
from tests.support.waiting import until

SECRET = "hunter2"
RECEIVE_MILLIS = 200
RECEIVE_SECONDS = 30


@pytest.fixture
async def bus(pulsar_server: LinedPulsar) -> AsyncIterator[MessageBus]:
    made = PulsarMessageBus(pulsar_server.url, admin_url=pulsar_server.admin_url)
    yield made
    await made.close()


async def admin(server: Pulsar, method: str, path: str, body: object = None) -> None:
    """Ask the admin interface for a change."""

    def ask() -> int:
        connection = http.client.HTTPConnection(urlsplit(server.admin_url).netloc, timeout=20)
        try:
            content = None if body is None else json.dumps(body)
            headers = {"Content-Type": "application/json"}
            connection.request(method, f"/admin/v2{path}", content, headers)
            return connection.getresponse().status
        finally:
            connection.close()

    assert await asyncio.to_thread(ask) in {200, 204}


async def new_namespace(server: LinedPulsar) -> str:
    namespace = f"public/n{uuid4().hex}"
    await admin(server, "PUT", f"/namespaces/{namespace}")
    return namespace


async def test_a_message_over_the_limit_is_refused_and_its_neighbours_pass(
    pulsar_server: LinedPulsar, bus: MessageBus
) -> None:
    topic = new_topic()
    batch = [message(topic, 1), message(topic, 2, data=TOO_LARGE), message(topic, 3)]

    outcomes = await bus.publish(batch)

    assert [type(outcome) for outcome in outcomes] == [Accepted, Refused, Accepted]
    assert set(ids(await PulsarRig(pulsar_server).read(topic))) == set(ids([batch[0], batch[2]]))


async def test_the_callers_own_client_is_used_and_left_open(pulsar_server: LinedPulsar) -> None:
    client = quiet_client(pulsar_server)
    bus = PulsarMessageBus(client)

    outcomes = await bus.publish([message(new_topic())])
    await bus.close()

    assert outcomes == [ACCEPTED]
    assert client.get_topic_partitions("still-open")
    client.close()


async def test_a_missing_topic_is_unavailable_where_the_broker_makes_none(
    pulsar_server: LinedPulsar,
) -> None:
    namespace, topic = await new_namespace(pulsar_server), new_topic()
    off = {"allowAutoTopicCreation": False}
    await admin(pulsar_server, "POST", f"/namespaces/{namespace}/autoTopicCreation", off)
    bus = PulsarMessageBus(
        pulsar_server.url, namespace=namespace, admin_url=pulsar_server.admin_url
    )

    [missing] = await bus.publish([message(topic)])
    made = await bus.apply([topic])
    [found] = await bus.publish([message(topic)])
    await bus.close()

    assert isinstance(missing, Unavailable)
    assert (missing.code, missing.topic) == ("TopicNotFound", topic)
    assert (made, found) == ([topic], ACCEPTED)


async def test_a_terminated_topic_is_unavailable_and_others_pass(
    pulsar_server: LinedPulsar, bus: MessageBus
) -> None:
    ended, other = new_topic(), new_topic()
    assert await bus.publish([message(ended), message(other)]) == [ACCEPTED] * 2
    await admin(pulsar_server, "POST", f"/persistent/public/default/{ended}/terminate")

    first = await bus.publish([message(ended), message(other)])
    second = await bus.publish([message(ended), message(other)])

    assert [first[1], second[1]] == [ACCEPTED] * 2
    assert isinstance(second[0], Unavailable)
    assert second[0].topic == ended


async def once_blocked(server: LinedPulsar, namespace: str, topic: str) -> PublishOutcome:
    """Publish through one new bus after the other until a message is not accepted; return why.

    The broker heeds a new quota when a producer opens, and not at once.
    """
    outcomes: list[PublishOutcome] = []

    async def blocked() -> bool:
        bus = PulsarMessageBus(server.url, namespace=namespace)
        outcomes[:] = await bus.publish([message(topic)])
        await bus.close()
        return outcomes != [ACCEPTED]

    await until(blocked, "the quota holds", 30)
    return outcomes[0]


async def test_a_topic_whose_quota_is_used_up_is_unavailable_until_there_is_room(
    pulsar_server: LinedPulsar,
) -> None:
    namespace, topic = await new_namespace(pulsar_server), new_topic()
    quota = f"/namespaces/{namespace}/backlogQuota"
    bus = PulsarMessageBus(pulsar_server.url, namespace=namespace)
    client = quiet_client(pulsar_server)
    client.subscribe(f"{namespace}/{topic}", "slow")
    assert await bus.publish([message(topic, n) for n in range(20)]) == [ACCEPTED] * 20
    await bus.close()
    await admin(pulsar_server, "POST", quota, {"limitSize": 1, "policy": "producer_exception"})

    full = await once_blocked(pulsar_server, namespace, topic)
    await admin(pulsar_server, "DELETE", quota)
    late = PulsarMessageBus(pulsar_server.url, namespace=namespace)

    async def accepted() -> bool:
        return list(await late.publish([message(topic)])) == [ACCEPTED]

    await until(accepted, "there is room again", 30)
    await late.close()
    client.close()

    assert isinstance(full, Unavailable)
    assert (full.code, full.topic) == ("ProducerBlockedQuotaExceededException", topic)


async def test_a_name_that_is_no_topic_is_refused(bus: MessageBus) -> None:
    [outcome] = await bus.publish([message("two words")])

    assert isinstance(outcome, Refused)


async def test_full_names_and_plain_names_reach_the_same_topic(
    pulsar_server: LinedPulsar, bus: MessageBus
) -> None:
    topic = new_topic()
    names = [topic, f"public/default/{topic}", f"persistent://public/default/{topic}"]

    outcomes = await bus.publish([message(name) for name in names])

    assert outcomes == [ACCEPTED] * 3
    assert len(await PulsarRig(pulsar_server).read(topic)) == 3


async def test_a_key_stays_with_one_consumer_although_messages_share_batches(
    pulsar_server: LinedPulsar, bus: MessageBus
) -> None:
    topic = new_topic()
    client = quiet_client(pulsar_server)
    consumers = [
        client.subscribe(topic, "shared", consumer_type=pulsar.ConsumerType.KeyShared)
        for _ in range(2)
    ]

    await bus.publish([message(topic, n, key=f"k{n % 40}") for n in range(400)])
    received = await asyncio.to_thread(receive_all, consumers, 400)
    client.close()

    keys = [{found.partition_key() for found in part} for part in received]
    assert keys[0]
    assert keys[1]
    assert not keys[0] & keys[1]
    for part in received:
        assert in_order(part)
    assert max(found.message_id().batch_index() for part in received for found in part) > 0


async def test_partitions_keep_the_order_of_a_key(pulsar_server: LinedPulsar) -> None:
    topic = new_topic()
    bus = PulsarMessageBus(pulsar_server.url, partitions=4, admin_url=pulsar_server.admin_url)
    client = quiet_client(pulsar_server)

    assert await bus.apply([topic]) == [topic]
    consumer = client.subscribe(topic, "all")
    outcomes = await bus.publish([message(topic, n, key=f"k{n % 20}") for n in range(200)])
    [received] = await asyncio.to_thread(receive_all, [consumer], 200)
    await bus.close()
    client.close()

    assert outcomes == [ACCEPTED] * 200
    assert in_order(received)
    assert len({found.topic_name() for found in received}) > 1


def receive_all(consumers: list[Any], count: int) -> list[list[Any]]:
    """Take messages from consumers in turns, from each as long as it has some."""
    received: list[list[Any]] = [[] for _ in consumers]
    limit = time.monotonic() + RECEIVE_SECONDS
    while sum(map(len, received)) < count:
        assert time.monotonic() < limit, "Pulsar gives no more messages"
        for consumer, part in zip(consumers, received, strict=True):
            with suppress(pulsar.Timeout):
                while len(part) < count:
                    part.append(consumer.receive(RECEIVE_MILLIS))
    return received


def in_order(received: list[Any]) -> bool:
    by_key: dict[str, list[int]] = {}
    for found in received:
        by_key.setdefault(found.partition_key(), []).append(json.loads(found.data())["n"])
    return all(numbers == sorted(numbers) for numbers in by_key.values())


async def test_few_producers_serve_many_topics(pulsar_server: LinedPulsar) -> None:
    bus = PulsarMessageBus(pulsar_server.url, max_producers=2)
    topics = [new_topic() for _ in range(5)]

    outcomes = [found for topic in topics for found in await bus.publish([message(topic)])]
    opened = len(bus._producers._lives)
    await bus.close()

    assert outcomes == [ACCEPTED] * 5
    assert opened == 2


async def test_more_topics_at_once_than_producers_wait(pulsar_server: LinedPulsar) -> None:
    bus = PulsarMessageBus(pulsar_server.url, max_producers=1)
    batch = [message(new_topic(), n) for n in range(3)]

    outcomes = await bus.publish(batch)
    await bus.close()

    assert {type(outcome) for outcome in outcomes} == {Accepted, Unavailable}
    codes = {outcome.code for outcome in outcomes if isinstance(outcome, Unavailable)}
    assert codes == {"too-many-producers"}


async def test_a_producer_long_unused_is_closed(
    bus: PulsarMessageBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = new_topic(), new_topic()
    assert await bus.publish([message(old)]) == [ACCEPTED]
    monkeypatch.setattr("pillarbox.bus.pulsar.producers.UNUSED_SECONDS", 0.0)

    assert await bus.publish([message(new)]) == [ACCEPTED]
    opened = set(bus._producers._lives)
    again = await bus.publish([message(old)])

    assert opened == {new}
    assert again == [ACCEPTED]


async def test_what_is_weak_in_a_namespace_is_said_at_start(pulsar_server: LinedPulsar) -> None:
    namespace = await new_namespace(pulsar_server)
    await admin(pulsar_server, "POST", f"/namespaces/{namespace}/deduplication", body=False)
    bus = PulsarMessageBus(
        pulsar_server.url, namespace=namespace, dedup=True, admin_url=pulsar_server.admin_url
    )

    said = await bus.start()
    await bus.close()

    assert [part in " ".join(said) for part in ("bookie", "retention", "deduplication")] == [
        True
    ] * 3


async def test_a_namespace_that_is_not_there_is_told_at_the_start(
    pulsar_server: LinedPulsar,
) -> None:
    bus = PulsarMessageBus(
        pulsar_server.url, namespace="public/mistyped", admin_url=pulsar_server.admin_url
    )

    said = await bus.start()
    await bus.close()

    assert any("there is no namespace public/mistyped" in found for found in said)


async def test_a_namespace_with_safe_settings_has_no_weakness(pulsar_server: LinedPulsar) -> None:
    namespace = await new_namespace(pulsar_server)
    copies = {
        "bookkeeperEnsemble": 3,
        "bookkeeperWriteQuorum": 3,
        "bookkeeperAckQuorum": 2,
        "managedLedgerMaxMarkDeleteRate": 0,
    }
    kept = {"retentionTimeInMinutes": 60, "retentionSizeInMB": -1}
    await admin(pulsar_server, "POST", f"/namespaces/{namespace}/persistence", copies)
    await admin(pulsar_server, "POST", f"/namespaces/{namespace}/retention", kept)
    bus = PulsarMessageBus(
        pulsar_server.url, namespace=namespace, dedup=True, admin_url=pulsar_server.admin_url
    )

    said = await bus.start()
    await bus.close()

    assert said == []


async def test_without_the_admin_interface_start_says_what_it_did_not_see(
    pulsar_server: LinedPulsar,
) -> None:
    bus = PulsarMessageBus(pulsar_server.url)

    said = await bus.start()
    await bus.close()

    assert "admin_url" in said[0]


async def test_compression_is_a_setting(pulsar_server: LinedPulsar) -> None:
    topic = new_topic()
    bus = PulsarMessageBus(
        pulsar_server.url, settings={"compression_type": pulsar.CompressionType.LZ4}
    )

    outcomes = await bus.publish([message(topic, data=b"x" * 10_000)])
    await bus.close()

    assert outcomes == [ACCEPTED]
    assert (await PulsarRig(pulsar_server).read(topic))[0].body == b"x" * 10_000


async def test_a_send_timeout_of_zero_is_refused_with_the_reason() -> None:
    with pytest.raises(InvalidConfig, match="for ever"):
        PulsarMessageBus("pulsar://127.0.0.1:6650", publish_timeout=timedelta(0))
    with pytest.raises(InvalidConfig, match="for ever"):
        PulsarMessageBus("pulsar://127.0.0.1:6650", settings={"send_timeout_millis": 0})


@pytest.mark.parametrize("name", ["producer_name", "batching_type", "access_mode"])
async def test_settings_that_order_rests_on_are_refused(name: str) -> None:
    with pytest.raises(InvalidConfig, match=name):
        PulsarMessageBus("pulsar://127.0.0.1:6650", settings={name: "x"})


@pytest.mark.parametrize(
    "url", [f"pulsar://app:{SECRET}@host:6650", f"pulsar://host:6650?token={SECRET}", "pulsar://"]
)
async def test_a_url_that_holds_more_than_servers_is_refused_without_repeating_it(
    url: str,
) -> None:
    with pytest.raises(InvalidConfig) as refused:
        PulsarMessageBus(url)

    assert SECRET not in str(refused.value)


async def test_a_url_with_the_ports_of_pulsar_itself_names_its_admin_interface() -> None:
    bus = PulsarMessageBus("pulsar://localhost:6650")

    assert bus._admin is not None
    assert bus._admin._server == "http://localhost:8080"
    await bus.close()


async def test_exposure_to_another_machine_is_said() -> None:
    plain = PulsarMessageBus("pulsar://pulsar.example:6650")
    secure = PulsarMessageBus("pulsar+ssl://pulsar.example:6651")

    assert "not encrypted" in plain._exposure()[0]
    assert secure._exposure() == []
    await plain.close()
    await secure.close()
