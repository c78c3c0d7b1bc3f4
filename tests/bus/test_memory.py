from pillarbox.bus.memory import MemoryMessageBus
from pillarbox.bus.message_bus import Capabilities
from pillarbox.bus.outcome import ACCEPTED, Refused, Unavailable, Unknown
from pillarbox.event.rules import MEMORY
from tests.bus.rig import ids, kinds, message

LOST = Unknown("ack-lost", "in this test")
REFUSED = Refused("too-odd", "in this test")


async def test_a_message_is_refused_by_its_id_and_its_key_waits() -> None:
    bus = MemoryMessageBus()
    batch = [message("t", n, key="k") for n in range(3)]
    bus.fail_with({batch[1].event_id}, REFUSED)

    outcomes = await bus.publish(batch)

    assert kinds(outcomes) == ["Accepted", "Refused", "Unknown"]
    assert bus.messages == batch[:1]


async def test_an_acknowledgement_is_lost_once() -> None:
    bus = MemoryMessageBus()
    lost = message("t")
    bus.fail_with(lambda found: found.topic == "t", LOST, store=True, times=1)

    assert await bus.publish([lost]) == [LOST]
    assert await bus.publish([lost]) == [ACCEPTED]
    assert ids(bus.messages) == [lost.event_id] * 2


async def test_a_bus_that_deduplicates_keeps_one_copy_per_tenant() -> None:
    bus = MemoryMessageBus(Capabilities(MEMORY, deduplicates=True))
    one = message("t")

    await bus.publish([one, one, one._replace(tenant_id="other")])

    assert [kept.tenant_id for kept in bus.messages] == ["default", "other"]


async def test_failures_end_with_recover_and_everything_with_close() -> None:
    bus = MemoryMessageBus()
    bus.fail_with(lambda _: True, Unavailable("down", "in this test"))
    assert kinds(await bus.publish([message("t")])) == ["Unavailable"]

    bus.recover()
    assert await bus.publish([message("t")]) == [ACCEPTED]

    await bus.close()
    assert kinds(await bus.publish([message("t")])) == ["Unavailable"]
