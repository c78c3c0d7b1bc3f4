"""What only NATS does: streams, its limits and its removal of duplicates."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta

import nats
import pytest
from nats.js.api import DiscardPolicy, StreamConfig

from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.nats import NatsMessageBus
from pillarbox.bus.nats.client import GuardedClient
from pillarbox.bus.outcome import ACCEPTED, Accepted, Refused, Unavailable, Unknown
from pillarbox.bus.partition import partition_for
from pillarbox.servers import Nats
from pillarbox.servers.ports import LOOPBACK
from tests.bus.rig import ids, kinds, message, new_topic
from tests.bus.rig_nats import NatsRig
from tests.support.faultproxy import CLIENT, Drop, FaultProxy


@pytest.fixture
async def bus(nats_server: Nats) -> AsyncIterator[MessageBus]:
    made = NatsMessageBus(nats_server.url)
    yield made
    await made.close()


async def add_stream(
    server: Nats, topic: str, discard: DiscardPolicy = DiscardPolicy.NEW, **limits: int
) -> None:
    client = await nats.connect(server.url)
    config = StreamConfig(name=topic.replace(".", "_"), subjects=[topic], **limits)  # type: ignore[arg-type]  # the limits are ints
    config.discard = discard
    await client.jetstream().add_stream(config)
    await client.close()


async def test_a_message_over_the_servers_limit_is_refused_and_its_neighbours_pass(
    nats_server: Nats, bus: MessageBus
) -> None:
    topic = new_topic()
    batch = [message(topic, 1), message(topic, 2, data=b"x" * 1_100_000), message(topic, 3)]

    outcomes = await bus.publish(batch)

    assert [type(outcome) for outcome in outcomes] == [Accepted, Refused, Accepted]
    assert ids(await NatsRig(nats_server).read(topic)) == ids([batch[0], batch[2]])


async def test_a_message_over_the_streams_limit_is_refused(
    nats_server: Nats, bus: MessageBus
) -> None:
    topic = new_topic()
    await add_stream(nats_server, topic, max_msg_size=2_000)

    [outcome] = await bus.publish([message(topic, data=b"x" * 5_000)])

    assert isinstance(outcome, Refused)
    assert outcome.certain


async def test_a_sealed_stream_is_read_only(nats_server: Nats, bus: MessageBus) -> None:
    topic = new_topic()
    assert await bus.publish([message(topic)]) == [ACCEPTED]
    client = await nats.connect(nats_server.url)
    stream = client.jetstream()
    config = (await stream.stream_info(topic.partition(".")[0])).config
    config.sealed = True
    await stream.update_stream(config)
    await client.close()

    [outcome] = await bus.publish([message(topic)])

    assert isinstance(outcome, Unavailable)
    assert (outcome.code, outcome.topic) == ("jetstream-10109", topic)


async def test_a_full_stream_is_unavailable(nats_server: Nats, bus: MessageBus) -> None:
    topic = new_topic()
    await add_stream(nats_server, topic, max_msgs=1)

    outcomes = await bus.publish([message(topic, 1), message(topic, 2)])

    assert outcomes[0] == ACCEPTED
    assert isinstance(outcomes[1], Unavailable)
    assert outcomes[1].topic == topic


async def test_a_topic_whose_stream_is_called_error_is_no_error(bus: MessageBus) -> None:
    assert await bus.publish([message("error.seen")]) == [ACCEPTED]


async def test_a_start_names_streams_that_lose_events_or_take_only_small_ones(
    nats_server: Nats, bus: MessageBus
) -> None:
    topic = new_topic()
    stream = f"stream {topic.replace('.', '_')}"
    await add_stream(nats_server, topic, DiscardPolicy.OLD, max_msgs=10, max_msg_size=2_000)

    said = " ".join(found for found in await bus.start() if found.startswith(stream))

    assert f"{stream} has 1 of 3 copies" in said
    assert "sync_interval" in said
    assert f"{stream} loses its oldest events when it is full" in said
    assert f"{stream} takes messages up to 2,000 bytes" in said


async def test_a_missing_stream_on_another_machine_is_unavailable(
    bus: MessageBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus, "_makes_streams", False)
    topic = new_topic()

    [outcome] = await bus.publish([message(topic)])

    assert isinstance(outcome, Unavailable)
    assert (outcome.code, outcome.topic) == ("no-stream", topic)


async def test_the_id_of_one_tenant_does_not_hide_that_of_another(
    nats_server: Nats, bus: MessageBus
) -> None:
    topic = new_topic()
    one = message(topic)

    await bus.publish([one, one._replace(tenant_id="other"), one])

    stored = await NatsRig(nats_server).read(topic)
    assert [found.headers["tenant_id"] for found in stored] == ["default", "other"]


async def test_a_named_stream_takes_further_topics(nats_server: Nats) -> None:
    first, second = new_topic(), new_topic()
    name = first.partition(".")[0].upper()
    bus = NatsMessageBus(nats_server.url, stream=name)

    outcomes = [*await bus.publish([message(first)]), *await bus.publish([message(second)])]
    await bus.close()

    assert outcomes == [ACCEPTED] * 2
    client = await nats.connect(nats_server.url)
    assert (await client.jetstream().stream_info(name)).state.messages == 2
    await client.close()


async def test_partitions_keep_a_key_together_in_a_stream_that_covers_them_all(
    nats_server: Nats,
) -> None:
    topic = new_topic()
    bus = NatsMessageBus(nats_server.url, partitions=4)
    batch = [message(topic, n, key=f"key-{n % 20}") for n in range(100)]

    outcomes = await bus.publish(batch)
    made = await bus.apply([topic])
    await bus.close()

    assert outcomes == [ACCEPTED] * 100
    assert made == []
    for place in range(4):
        stored = ids(await NatsRig(nats_server).read(f"{topic}.p{place}"))
        meant = [sent for sent in batch if partition_for(sent, 4) == f"{topic}.p{place}"]
        assert stored == ids(meant)
        assert meant


@pytest.mark.parametrize("elsewhere", ["other", "p1"])
async def test_partitions_beside_a_stream_that_keeps_a_part_of_the_word_get_one_of_their_own(
    nats_server: Nats, elsewhere: str
) -> None:
    topic = new_topic()
    await add_stream(nats_server, f"{topic}.{elsewhere}")
    bus = NatsMessageBus(nats_server.url, partitions=4)

    outcomes = await bus.publish([message(topic, n) for n in range(50)])
    await bus.close()

    assert outcomes == [ACCEPTED] * 50


async def test_a_partition_that_is_missing_elsewhere_is_told_by_its_topic(
    nats_server: Nats, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()
    await add_stream(nats_server, f"{topic}.p0")
    bus = NatsMessageBus(nats_server.url, partitions=2)
    monkeypatch.setattr(bus, "_makes_streams", False)

    [outcome] = await bus.publish([message(topic)])
    await bus.close()

    assert isinstance(outcome, Unavailable)
    assert (outcome.code, outcome.topic) == ("no-stream", topic)


async def test_a_full_partition_is_told_by_its_topic(nats_server: Nats) -> None:
    topic = new_topic()
    await add_stream(nats_server, f"{topic}.p0", max_msgs=1)
    bus = NatsMessageBus(nats_server.url, partitions=1)

    outcomes = await bus.publish([message(topic, 1), message(topic, 2)])
    await bus.close()

    assert outcomes[0] == ACCEPTED
    assert isinstance(outcomes[1], Unavailable)
    assert outcomes[1].topic == topic


async def test_a_header_or_topic_that_would_break_the_protocol_is_refused(bus: MessageBus) -> None:
    topic = new_topic()
    broken = message(topic, headers={"x": "a\r\nNats-Rollup: all"})

    outcomes = await bus.publish([broken, message("two words", key=None)])

    assert [type(outcome) for outcome in outcomes] == [Refused, Refused]


async def test_one_by_one_stops_a_key_at_its_refused_message(bus: MessageBus) -> None:
    topic = new_topic()
    batch = [
        message(topic, key="k", data=b"x" * 1_100_000),
        message(topic, key="k"),
        message(topic),
    ]

    outcomes = await bus.publish(batch, one_by_one=True)

    assert [type(outcome) for outcome in outcomes] == [Refused, Unknown, Accepted]


async def test_a_bus_that_is_closed_while_it_looks_for_a_stream_does_not_wait_for_it(
    nats_server: Nats,
) -> None:
    async with FaultProxy(LOOPBACK, nats_server.port) as proxy:
        bus = NatsMessageBus(f"nats://{proxy.host}:{proxy.port}")
        assert await bus.publish([message(new_topic())]) == [ACCEPTED]
        proxy.now(Drop(CLIENT))
        looking = asyncio.ensure_future(bus.publish([message(new_topic())]))
        await asyncio.sleep(0)
        begun = time.monotonic()

        await bus.close()
        outcomes = await looking

    assert kinds(outcomes) == ["Unavailable"]
    assert time.monotonic() - begun < 3


async def test_a_limit_holds_although_the_client_swallows_its_cancellation(
    nats_server: Nats, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def swallow(_: GuardedClient) -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        raise ConnectionRefusedError

    monkeypatch.setattr(GuardedClient, "_process_connect_init", swallow)
    bus = NatsMessageBus(nats_server.url, publish_timeout=timedelta(seconds=1))
    publishing = asyncio.ensure_future(bus.publish([message(new_topic())]))

    ended, _ = await asyncio.wait({publishing}, timeout=10)
    await bus.close()

    assert ended
    assert kinds(publishing.result()) == ["Unavailable"]
