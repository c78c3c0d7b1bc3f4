"""The line to Redis: what breaks it, who waits for it, and who can read along."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from redis.asyncio import Redis as Client

from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.outcome import ACCEPTED, Unavailable, Unknown
from pillarbox.bus.redis import RedisMessageBus
from pillarbox.bus.redis.connections import CONNECTIONS
from pillarbox.errors import BusUnreachable, InvalidConfig
from pillarbox.servers import Redis
from pillarbox.servers.ports import LOOPBACK
from tests.bus.rig import ids, kinds, message, new_topic
from tests.bus.rig_redis import RedisRig
from tests.support.faultproxy import SERVER, AfterBytes, Cut, FaultProxy, Rule
from tests.support.waiting import until

SECRET = "hunter2"


async def test_a_connection_cut_within_a_command_leaves_what_had_no_answer_unknown(
    redis_server: Redis,
) -> None:
    topic = new_topic()
    async with FaultProxy(LOOPBACK, redis_server.port) as proxy:
        bus = RedisMessageBus(f"redis://{proxy.host}:{proxy.port}")
        assert await bus.publish([message(topic)]) == [ACCEPTED]
        proxy.plan(Rule(SERVER, AfterBytes(100_000), Cut()))
        batch = [message(topic, n) for n in range(1_000)]

        outcomes = await bus.publish(batch)
        await proxy.fired()
        after = await bus.publish([message(topic)])
        await bus.close()

    stored = set(ids(await RedisRig(redis_server).read(topic)))
    said = zip(batch, outcomes, strict=True)
    assert {sent.event_id for sent, outcome in said if outcome == ACCEPTED} <= stored
    assert set(kinds(outcomes)) <= {"Accepted", "Unknown"}
    assert isinstance(outcomes[-1], Unknown)
    assert after == [ACCEPTED]


async def test_an_idle_connection_that_the_server_ended_costs_no_message(
    redis_server: Redis,
) -> None:
    bus, topic = RedisMessageBus(redis_server.url), new_topic()
    assert await bus.publish([message(topic)]) == [ACCEPTED]
    [idle] = bus._connections._idle

    client: Any
    async with Client.from_url(redis_server.url) as client:
        await client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    async def noticed() -> bool:
        return not idle.usable

    await until(noticed, "the end of the connection is noticed")
    assert await bus.publish([message(topic)]) == [ACCEPTED]
    await bus.close()


@pytest.mark.parametrize(
    "make",
    [
        lambda: RedisMessageBus(f"redis://app:{SECRET}/x@host"),
        lambda: RedisMessageBus(f"http://app:{SECRET}@host"),
        lambda: RedisMessageBus("redis://host", options={"unheard_of": 1}),
        lambda: RedisMessageBus("redis://host", replicas=-1),
        lambda: RedisMessageBus("redis://host", max_length=0),
        lambda: RedisMessageBus("redis://host", partitions=0),
    ],
)
async def test_a_setting_that_cannot_work_is_refused(make: Callable[[], MessageBus]) -> None:
    with pytest.raises(InvalidConfig) as refused:
        make()

    assert SECRET not in str(refused.value)


async def test_a_wrong_password_is_unavailable_and_not_told(redis_server: Redis) -> None:
    bus = RedisMessageBus(f"redis://app:{SECRET}@{LOOPBACK}:{redis_server.port}")

    [outcome] = await bus.publish([message(new_topic())])
    with pytest.raises(BusUnreachable) as unreachable:
        await bus.start()

    assert isinstance(outcome, Unavailable)
    assert (outcome.code, outcome.topic) == ("unauthorised", None)
    assert SECRET not in f"{outcome} {unreachable.value} {bus!r}"


@pytest.mark.parametrize(
    ("url", "options", "weak"),
    [
        ("redis://localhost", {}, None),
        ("redis://queue.example", {}, "not encrypted"),
        ("rediss://queue.example", {}, None),
        ("rediss://queue.example", {"ssl_check_hostname": False}, "not verified"),
        (
            "rediss://queue.example?ssl_cert_reqs=none",
            {"ssl_check_hostname": False},
            "not verified",
        ),
    ],
)
async def test_a_line_that_others_can_read_or_take_over_is_weak(
    url: str, options: dict[str, Any], weak: str | None
) -> None:
    said = RedisMessageBus(url, options=options)._address.weaknesses()

    assert len(said) == (weak is not None)
    assert weak is None or weak in said[0]


async def test_more_calls_than_connections_wait_for_their_turn(redis_server: Redis) -> None:
    bus, topic = RedisMessageBus(redis_server.url), new_topic()
    batches = [[message(topic, n) for n in range(20)] for _ in range(3 * CONNECTIONS)]

    outcomes = await asyncio.gather(*(bus.publish(batch) for batch in batches))
    open_ = len(bus._connections._idle)
    await bus.close()

    assert outcomes == [[ACCEPTED] * 20] * len(batches)
    assert open_ <= CONNECTIONS


async def test_closing_answers_the_calls_that_wait_for_their_turn(redis_server: Redis) -> None:
    bus, topic = RedisMessageBus(redis_server.url), new_topic()
    calls = [
        asyncio.ensure_future(bus.publish([message(topic, n) for n in range(200)]))
        for _ in range(3 * CONNECTIONS)
    ]
    await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)

    await bus.close()
    outcomes = await asyncio.gather(*calls)

    said = {kind for answers in outcomes for kind in kinds(answers)}
    assert said <= {"Accepted", "Unknown", "Unavailable"}
    assert "Unavailable" in said
    assert bus._connections._idle == []
    assert await bus.publish([message(topic)]) == [ACCEPTED]
    await bus.close()
