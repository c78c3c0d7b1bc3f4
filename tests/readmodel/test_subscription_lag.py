"""A model that follows a subscription says how far it is behind, in events and in seconds."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from sqlalchemy import select

from pillarbox import Pillarbox
from pillarbox.bus.kafka import KafkaMessageBus
from pillarbox.bus.memory_subscription import MemorySubscription
from pillarbox.bus.nats import NatsMessageBus
from pillarbox.bus.outcome import ACCEPTED
from pillarbox.bus.pulsar import PulsarMessageBus
from pillarbox.bus.rabbitmq import RabbitMQMessageBus
from pillarbox.bus.redis import RedisMessageBus
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.ops import ModelView, ReadModelOps
from pillarbox.readmodel.config import ReadModelConfig
from pillarbox.schema.tables import readmodel
from pillarbox.testing import new_topic
from tests.readmodel.bank import QUICK, Bank, has, on_two, running
from tests.readmodel.rig import Accounts, Rig
from tests.support.database import on
from tests.support.waiting import until

BUSES: Final[dict[str, Callable[[Any], Any]]] = {
    "kafka": lambda server: KafkaMessageBus(server.bootstrap, partitions=3),
    "nats": lambda server: NatsMessageBus(server.url),
    "pulsar": lambda server: PulsarMessageBus(server.url, admin_url=server.admin_url, partitions=3),
    "rabbitmq": lambda server: RabbitMQMessageBus(server.url),
    "redis": lambda server: RedisMessageBus(server.url),
}
TELLING: Final = ReadModelConfig(look_every=0.02, tell_every=2.0)
HOUR: Final = 3_600.0


def deposit(topic: str, number: int) -> MessageEnvelope:
    """Make an event that occurred an hour ago."""
    account = f"a{number % 10}"
    return MessageEnvelope(
        event_id=f"{topic}-{number}", event_type="Deposited", topic=topic, key=account,
        payload={"account_id": account, "cents": 1},
        occurred_at=datetime.now(UTC) - timedelta(hours=1),
    )  # fmt: skip


def ops_of(rig: Rig) -> ReadModelOps:
    return ReadModelOps(rig.database.engine, actor="jane")


async def view(rig: Rig) -> ModelView:
    (found,) = await ops_of(rig).list()
    return found


async def seconds(rig: Rig) -> float:
    return (await view(rig)).lag_seconds


async def at_end(rig: Rig) -> bool:
    """Tell whether the model has everything, as was told a moment ago."""
    found = await view(rig)
    return found.lag_events == 0 and found.lag_seconds < HOUR


@asynccontextmanager
async def nothing_is_applied(rig: Rig) -> AsyncIterator[None]:
    """Hold the model's row, for which every batch waits."""
    async with rig.database.engine.begin() as connection:
        await connection.execute(select(readmodel).with_for_update())
        yield


@on("postgres18+asyncpg")
@pytest.mark.parametrize("broker", BUSES)
async def test_a_model_behind_a_real_broker_tells_the_age_of_what_it_has_not_applied(
    rig: Rig, broker: str, request: pytest.FixtureRequest
) -> None:
    bus, topic = BUSES[broker](request.getfixturevalue(f"{broker}_server")), new_topic()
    await bus.start()
    await bus.apply([topic])
    box = Pillarbox(rig.database.engine, bus, service="bank", environ={})
    model = box.read_model(Accounts, topics=[topic], config=TELLING)

    async def is_an_hour_late() -> bool:
        return await seconds(rig) >= HOUR

    async with running(model):
        await until(lambda: applied(rig, 0), "the model has begun")
        await until(lambda: at_end(rig), "nothing has come yet")
        async with nothing_is_applied(rig):
            outcomes = await bus.publish([deposit(topic, number) for number in range(30)])
            await until(is_an_hour_late, "what waits is an hour old")
            late = await view(rig)
        await until(lambda: at_end(rig), "all is applied")
        there = await view(rig)
        cents = await rig.cents()
        await ops_of(rig).pause("accounts", reason="a test")
        await until(lambda: has_left(rig), "the consumer is stopped")
        paused = [await seconds(rig)]
        await bus.publish([deposit(topic, 30)])
        paused.append(await seconds(rig))
        await ops_of(rig).resume("accounts", reason="it is over")
        await until(lambda: applied(rig, 31), "it has gone on")
        await until(lambda: at_end(rig), "the last one is applied")
    await bus.close()

    assert list(outcomes) == [ACCEPTED] * 30
    assert late.lag_events in ({None} if broker == "pulsar" else set(range(1, 31)))
    assert there.lag_events == 0
    assert sum(cents.values()) == 30
    assert 0 < paused[0] < paused[1] < HOUR


async def applied(rig: Rig, cents: int) -> bool:
    return bool(await ops_of(rig).list()) and sum((await rig.cents()).values()) == cents


async def has_left(rig: Rig) -> bool:
    """Tell whether what was told last is good for nothing any more."""
    told = "SELECT count(*) FROM readmodel_member WHERE good_until > told_at"
    return bool(await rig.database.scalar(told) == 0)


@pytest.fixture
def bank(rig: Rig) -> Bank:
    return Bank(rig, config=replace(QUICK, tell_every=2.0))


@on_two
async def test_the_lag_has_its_metrics(bank: Bank, rig: Rig) -> None:
    async with running(bank.model):
        bank.open("ann", 1)
        await until(lambda: has(bank, ("ann", 0)), "the message is applied")
        await until(lambda: at_end(rig), "the end is told")
        samples = await ops_of(rig).gauges()

    assert [(sample.name, sample.labels) for sample in samples] == [
        ("pillarbox_readmodel_lag_events", (("model", "accounts"),)),
        ("pillarbox_readmodel_lag_seconds", (("model", "accounts"),)),
    ]
    events, late = (sample.value for sample in samples)
    assert events == 0
    assert isinstance(late, float)
    assert 0 < late < HOUR


@on_two
async def test_messages_that_the_broker_does_not_give_are_late_all_the_same(
    bank: Bank, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is in hand, and yet the model has not reached the end."""

    async def nothing(self: MemorySubscription, most: int) -> tuple[()]:
        del self, most
        await asyncio.sleep(0.01)
        return ()

    async def is_late() -> bool:
        found = await view(rig)
        return found.lag_events == 2 and found.lag_seconds > 0

    with monkeypatch.context() as patch:
        patch.setattr(MemorySubscription, "receive", nothing)
        async with running(bank.model):
            await until(lambda: applied(rig, 0), "the model has begun")
            await until(lambda: at_end(rig), "nothing has come yet")
            bank.deposit(5, 1)
            bank.deposit(7, 2)
            await until(is_late, "both are told of")
            first, second = await seconds(rig), await seconds(rig)
            patch.undo()
            await until(lambda: at_end(rig), "they are applied")

    assert 0 < first < second
    assert await bank.row() == (None, 12)


@on_two
async def test_after_a_drain_nobody_knows_what_waits(bank: Bank, rig: Rig) -> None:
    bank.deposit(5, 1)
    await bank.model.drain()

    first, second = await view(rig), await view(rig)

    assert (first.lag_events, second.lag_events) == (None, None)
    assert 0 < first.lag_seconds < second.lag_seconds


@on_two
async def test_a_message_that_was_set_aside_is_a_held_key(bank: Bank, rig: Rig) -> None:
    bank.send("Opened", "{}", 1)
    async with running(bank.model):
        await until(lambda: is_held(rig), "it is set aside")
        await until(lambda: at_end(rig), "nothing else waits")


async def is_held(rig: Rig) -> bool:
    return bool(await ops_of(rig).list()) and (await view(rig)).held_keys == 1


@on_two
async def test_who_is_long_gone_is_forgotten(bank: Bank, rig: Rig) -> None:
    await bank.model.drain()
    past = datetime.now(UTC) - timedelta(hours=1)
    async with rig.database.engine.begin() as connection:
        table = readmodel.metadata.tables["readmodel_member"]
        await connection.execute(table.update().values(good_until=past))

    await bank.model.drain()

    assert await rig.count("readmodel_member") == 1


@on_two
async def test_a_rebuild_takes_what_the_old_generation_told_with_it(bank: Bank, rig: Rig) -> None:
    bank.deposit(5, 1)
    await bank.model.drain()

    await bank.model.rebuild()

    generations = "SELECT min(generation) FROM readmodel_member"
    assert await rig.database.scalar(generations) == 2
    assert 0 < await seconds(rig) < HOUR
