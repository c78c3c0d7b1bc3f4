"""What every bus does, on the real broker."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.outcome import ACCEPTED
from tests.bus.rig import Rig, ids, kinds, message, new_topic

ODD_BODIES = (
    b"",
    b"\x00",
    bytes(range(256)),
    b"\r\n\r\nHPUB x 1 1\r\n",
    "π€🦊".encode(),
    b"x" * 900_000,
)


@pytest.fixture
async def bus(rig: Rig) -> AsyncIterator[MessageBus]:
    made = rig.bus()
    yield made
    await made.close()


async def test_start_is_safe_to_repeat(bus: MessageBus) -> None:
    first = await bus.start()
    second = await bus.start()

    assert list(first) == list(second)


async def test_accepted_messages_of_a_key_are_stored_in_the_order_of_the_batch(
    rig: Rig, bus: MessageBus
) -> None:
    topic = new_topic()
    batch = [message(topic, n, key="one") for n in range(200)]

    outcomes = await bus.publish(batch)

    assert outcomes == [ACCEPTED] * 200
    assert ids(await rig.read(topic)) == ids(batch)


async def test_calls_that_overlap_all_arrive(rig: Rig, bus: MessageBus) -> None:
    topic = new_topic()
    batches = [[message(topic, n) for n in range(100)] for _ in range(8)]

    outcomes = await asyncio.gather(*(bus.publish(batch) for batch in batches))

    assert outcomes == [[ACCEPTED] * 100] * 8
    stored = ids(await rig.read(topic))
    assert sorted(stored) == sorted(sent.event_id for batch in batches for sent in batch)


async def test_an_empty_batch_has_no_outcomes(bus: MessageBus) -> None:
    assert list(await bus.publish([])) == []
    assert list(await bus.publish([], one_by_one=True)) == []


@pytest.mark.parametrize("body", ODD_BODIES, ids=len)
async def test_odd_bodies_arrive_byte_for_byte(rig: Rig, bus: MessageBus, body: bytes) -> None:
    topic = new_topic()

    outcomes = await bus.publish([message(topic, data=body, content_type="application/x")])

    assert outcomes == [ACCEPTED]
    assert (await rig.read(topic))[0].body == body


async def test_headers_and_odd_names_arrive_unchanged(rig: Rig, bus: MessageBus) -> None:
    topic = new_topic()
    own = {"X-Trace.Id_1": 'a "quoted" % value: with=signs', "traceparent": "00-" + "a" * 52}
    odd = message(
        topic, key="Größe 🦊", aggregate_id="Größe 🦊", event_type="Bestellt €", headers=own
    )

    assert await bus.publish([odd]) == [ACCEPTED]

    [stored] = await rig.read(topic)
    assert {name: stored.headers[name] for name in own} == own
    assert stored.headers["aggregate_id"] == "Größe 🦊"
    assert stored.headers["event_type"] == "Bestellt €"
    assert stored.headers["event_id"] == odd.event_id
    assert stored.key in {"Größe 🦊", None}


async def test_a_tombstone_has_no_content(rig: Rig, bus: MessageBus) -> None:
    topic = new_topic()

    assert await bus.publish([message(topic, data=None)]) == [ACCEPTED]

    assert not (await rig.read(topic))[0].body


async def test_a_payload_that_is_no_bytes_yet_is_written_as_json(rig: Rig, bus: MessageBus) -> None:
    topic = new_topic()

    assert await bus.publish([message(topic, data=None, payload={"total": "9.90"})]) == [ACCEPTED]

    assert (await rig.read(topic))[0].body == b'{"total":"9.90"}'


async def test_one_by_one_keeps_the_order(rig: Rig, bus: MessageBus) -> None:
    topic = new_topic()
    batch = [message(topic, n, key="one") for n in range(20)]

    outcomes = await bus.publish(batch, one_by_one=True)

    assert outcomes == [ACCEPTED] * 20
    assert ids(await rig.read(topic)) == ids(batch)


async def test_repeating_an_accepted_message_is_harmless(rig: Rig, bus: MessageBus) -> None:
    topic = new_topic()
    again = message(topic)

    outcomes = [*await bus.publish([again]), *await bus.publish([again])]

    assert outcomes == [ACCEPTED] * 2
    assert len(await rig.read(topic)) == (1 if bus.capabilities.deduplicates else 2)


async def test_two_buses_in_one_process_do_not_disturb_each_other(
    rig: Rig, bus: MessageBus
) -> None:
    topic = new_topic()
    other = rig.bus()

    await asyncio.gather(bus.publish([message(topic, 1)]), other.publish([message(topic, 2)]))
    await other.close()
    outcomes = await bus.publish([message(topic, 3)])

    assert outcomes == [ACCEPTED]
    assert len(await rig.read(topic)) == 3


async def test_apply_makes_what_is_missing_once(rig: Rig, bus: MessageBus) -> None:
    topic = new_topic()

    made, again = await bus.apply([topic]), await bus.apply([topic])

    assert len(made) == 1
    assert list(again) == []


async def test_a_cancelled_call_leaves_a_bus_that_works(rig: Rig, bus: MessageBus) -> None:
    topic = new_topic()
    await bus.apply([topic])
    calls = [
        asyncio.ensure_future(bus.publish([message(topic, n) for n in range(500)]))
        for _ in range(3)
    ]
    await asyncio.sleep(0)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)

    outcomes = await bus.publish([message(topic, 1)])

    assert outcomes == [ACCEPTED]


async def test_closing_while_messages_are_under_way_answers_every_call(
    rig: Rig, bus: MessageBus
) -> None:
    topic = new_topic()
    await bus.apply([topic])
    calls = [
        asyncio.ensure_future(bus.publish([message(topic, n) for n in range(500)]))
        for _ in range(3)
    ]
    await asyncio.sleep(0)

    await bus.close()
    outcomes = await asyncio.gather(*calls)

    assert [len(answers) for answers in outcomes] == [500] * 3
    said = {kind for answers in outcomes for kind in kinds(answers)}
    assert said <= {"Accepted", "Unknown", "Unavailable"}
    await bus.close()
