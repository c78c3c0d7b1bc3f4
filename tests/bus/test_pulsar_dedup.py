"""Pulsar with numbered messages: one sent again after a lost answer is stored once."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import pytest

from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.outcome import ACCEPTED, Accepted, Unavailable, Unknown
from pillarbox.bus.pulsar import PulsarMessageBus
from pillarbox.bus.pulsar.numbers import EventKey, Numbers
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.testing import BusOutageContract, BusRig
from pillarbox.testing.contract.failures import FailureContract
from pillarbox.testing.contract.life import LifeContract
from pillarbox.testing.contract.lines import LineContract
from pillarbox.testing.contract.order import OrderContract
from tests.bus.rig import ids, message, new_topic
from tests.bus.rig_pulsar import KeptPulsar, PulsarRig
from tests.bus.test_outages import OwnRig
from tests.support.brokers import LinedPulsar
from tests.support.waiting import until

SHORT = timedelta(seconds=3)
ONE, TWO, THREE = (EventKey("orders", "default", name) for name in ("one", "two", "three"))


class TestContract(OrderContract, FailureContract, LineContract, LifeContract):
    """The contract of every bus but for contents, which numbers leave alone, and what they add."""

    @pytest.fixture
    def rig(self, pulsar_server: LinedPulsar) -> BusRig:
        return PulsarRig(pulsar_server, dedup=True)

    async def test_a_copy_is_removed_through_this_bus_and_stored_through_another(
        self, rig: BusRig, bus: MessageBus
    ) -> None:
        topic, other = new_topic(), rig.bus()
        again = message(topic)

        outcomes = [*await bus.publish([again]), *await bus.publish([again])]
        removed = ids(await rig.read(topic))
        outcomes += await other.publish([again])
        await other.close()

        assert outcomes == [ACCEPTED] * 3
        assert removed == [again.event_id]
        assert ids(await rig.read(topic)) == [again.event_id] * 2


@pytest.fixture(scope="module")
def own_pulsar() -> Iterator[LinedPulsar]:
    with KeptPulsar() as server:
        yield server


@pytest.mark.faults
@pytest.mark.servers("pulsar")
class TestOutages(BusOutageContract):
    """A broker that dies or freezes with messages under way: numbers change nothing without them."""

    test_a_killed_broker_costs_no_hang_and_is_used_again_when_it_is_back = None  # type: ignore[assignment]

    @pytest.fixture
    def rig(self, own_pulsar: LinedPulsar) -> BusRig:
        return OwnRig(own_pulsar, PulsarRig(own_pulsar, dedup=True))


@pytest.mark.faults
@pytest.mark.servers("pulsar")
class TestLostAnswers:
    """The broker froze with messages on their way, and stores them when it thaws."""

    @pytest.fixture
    async def bus(self, own_pulsar: LinedPulsar) -> AsyncIterator[PulsarMessageBus]:
        made = PulsarMessageBus(own_pulsar.url, dedup=True, publish_timeout=SHORT)
        yield made
        await made.close()

    async def test_what_is_sent_again_is_stored_once_and_in_order(
        self, own_pulsar: LinedPulsar, bus: PulsarMessageBus
    ) -> None:
        topic = new_topic()
        first = message(topic, key="k")
        lost = [message(topic, n, key="k") for n in range(20)]
        await until_accepted(bus, [first])

        await publish_frozen(own_pulsar, bus, lost)
        await until_accepted(bus, lost)
        later = message(topic, key="k")
        assert await bus.publish([later]) == [ACCEPTED]

        assert ids(await PulsarRig(own_pulsar).read(topic)) == ids([first, *lost, later])

    async def test_another_event_sent_first_makes_none_vanish(
        self, own_pulsar: LinedPulsar, bus: PulsarMessageBus
    ) -> None:
        topic = new_topic()
        lost = [message(topic, n) for n in range(20)]
        await until_accepted(bus, [message(topic)])

        await publish_frozen(own_pulsar, bus, lost)
        await until_accepted(bus, [message(topic)])
        await until_accepted(bus, lost[10:])
        await until_accepted(bus, lost[:10])

        assert set(ids(lost)) <= set(ids(await PulsarRig(own_pulsar).read(topic)))


@pytest.mark.faults
@pytest.mark.servers("pulsar")
async def test_a_broker_that_freezes_while_producers_are_opened_leaves_no_thread(
    own_pulsar: LinedPulsar,
) -> None:
    before = {*threading.enumerate()}
    for moment in range(16):
        bus = PulsarMessageBus(own_pulsar.url, dedup=True, publish_timeout=timedelta(seconds=1))
        calls = [asyncio.create_task(bus.publish([message(new_topic())])) for _ in range(4)]
        await asyncio.wait(calls, timeout=moment / 100)  # it freezes at another step each time
        own_pulsar.freeze()
        try:
            if moment % 2:
                await asyncio.wait(calls)
            await bus.close()
        finally:
            own_pulsar.thaw()
        outcomes = [outcome for call in calls for outcome in await call]
        assert {type(outcome) for outcome in outcomes} <= {Accepted, Unavailable, Unknown}

    async def all_have_ended() -> bool:
        names = [thread.name for thread in {*threading.enumerate()} - before]
        return not any(name.startswith("pillarbox-pulsar") for name in names)

    await until(all_have_ended, "every thread has ended", 30)


async def publish_frozen(
    server: LinedPulsar, bus: PulsarMessageBus, lost: list[MessageEnvelope]
) -> None:
    server.freeze()
    try:
        outcomes = await bus.publish(lost)
    finally:
        server.thaw()
    assert {type(outcome) for outcome in outcomes} == {Unknown}


async def until_accepted(bus: PulsarMessageBus, batch: list[MessageEnvelope]) -> None:
    async def accepted() -> bool:
        return list(await bus.publish(batch)) == [ACCEPTED] * len(batch)

    await until(accepted, "messages are accepted again", 60)


async def test_numbers_begin_above_zero_and_above_what_the_broker_has_seen() -> None:
    numbers = Numbers()
    numbers.opened(-1, exact=True)
    first = numbers.give(ONE)
    numbers.opened(41, exact=True)

    assert (first, numbers.give(TWO)) == (1, 42)


async def test_an_event_that_the_broker_has_not_seen_gets_a_new_number() -> None:
    numbers = Numbers()
    seen, unseen = numbers.give(ONE), numbers.give(TWO)

    numbers.opened(seen, exact=True)

    assert numbers.doubted(ONE) == seen
    assert numbers.doubted(TWO) is None
    assert numbers.give(TWO) > unseen


async def test_an_answered_event_is_not_in_doubt() -> None:
    numbers = Numbers()
    number = numbers.give(ONE)

    numbers.settled(ONE)
    numbers.opened(number, exact=True)

    assert numbers.doubted(ONE) is None


async def test_an_acknowledged_number_proves_those_below_it() -> None:
    numbers = Numbers()
    _, second, third = numbers.give(ONE), numbers.give(TWO), numbers.give(THREE)
    numbers.opened(third, exact=True)

    proven = numbers.proven(second)

    assert proven == [ONE, TWO]
    assert numbers.give_up_doubts() == 1
    assert numbers.doubted(THREE) is None


async def test_the_last_number_of_partitions_proves_nothing() -> None:
    numbers = Numbers()
    number = numbers.give(ONE)

    numbers.opened(number, exact=False)

    assert numbers.doubted(ONE) is None


async def test_calls_that_overlap_keep_their_numbers_apart(pulsar_server: LinedPulsar) -> None:
    topic = new_topic()
    bus = PulsarMessageBus(pulsar_server.url, dedup=True)
    batches = [[message(topic, n, key=f"k{n}-{at}") for n in range(600)] for at in range(4)]

    outcomes = await asyncio.gather(*(bus.publish(batch) for batch in batches))
    again = await asyncio.gather(*(bus.publish(batch) for batch in batches))
    await bus.close()

    assert outcomes == again == [[ACCEPTED] * 600] * 4
    stored = ids(await PulsarRig(pulsar_server).read(topic))
    assert sorted(stored) == sorted(sent.event_id for batch in batches for sent in batch)
