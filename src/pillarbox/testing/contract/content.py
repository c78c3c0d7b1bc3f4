"""What is stored is what was sent, byte for byte, as a CloudEvent."""

from typing import Final

import pytest

from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.outcome import ACCEPTED
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.event.rules import BusRules
from pillarbox.testing.contract.case import BusCase
from pillarbox.testing.contract.powers import binding_of, structuring
from pillarbox.testing.contract.readback import event_of
from pillarbox.testing.messages import message, new_topic
from pillarbox.testing.rig import Binding, BusRig, Stored

ODD_BODIES: Final = (
    b"",
    b"\x00",
    bytes(range(256)),
    b"\r\n\r\nHPUB x 1 1\r\n",
    "π€🦊".encode(),
    b"x" * 900_000,
)
_PRINTABLE: Final = "".join(map(chr, range(0x20, 0x7F)))
_NAME_MARKS: Final = "!#$%&'*+-.^_`|~"
# Our own headers travel beside the payload and count in no rule.
_OWN_HEADERS: Final = 16_384


class ContentContract(BusCase):
    """Bodies, headers and names arrive unchanged, up to the limits of the bus's rules."""

    @pytest.mark.parametrize("body", ODD_BODIES, ids=len)
    async def test_odd_bodies_arrive_byte_for_byte(
        self, rig: BusRig, bus: MessageBus, body: bytes
    ) -> None:
        topic = new_topic()

        outcomes = await bus.publish([message(topic, data=body, content_type="application/x")])

        assert outcomes == [ACCEPTED]
        assert (await rig.read(topic))[0].body == body

    async def test_the_largest_message_of_the_rules_arrives(
        self, rig: BusRig, bus: MessageBus
    ) -> None:
        topic = new_topic()
        largest = b"x" * (bus.capabilities.rules.message_max_bytes - _OWN_HEADERS)

        outcomes = await bus.publish([message(topic, data=largest)])

        assert outcomes == [ACCEPTED]
        # Compared as a truth value: a difference of megabytes is not worth showing.
        assert ((await rig.read(topic))[0].body == largest) is True

    async def test_headers_and_odd_names_arrive_unchanged(
        self, rig: BusRig, bus: MessageBus
    ) -> None:
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

    async def test_as_many_headers_as_the_rules_allow_arrive_unchanged(
        self, rig: BusRig, bus: MessageBus
    ) -> None:
        topic = new_topic()
        own = full_headers(bus.capabilities.rules)

        assert await bus.publish([message(topic, headers=own)]) == [ACCEPTED]

        [stored] = await rig.read(topic)
        assert {name: stored.headers.get(name) for name in own} == own

    async def test_the_longest_topic_of_the_rules_is_taken(
        self, rig: BusRig, bus: MessageBus
    ) -> None:
        topic = new_topic().ljust(bus.capabilities.rules.topic_max_bytes, "x")

        assert await bus.publish([message(topic)]) == [ACCEPTED]

        assert len(await rig.read(topic)) == 1

    async def test_a_tombstone_has_no_content(self, rig: BusRig, bus: MessageBus) -> None:
        topic = new_topic()

        assert await bus.publish([message(topic, data=None)]) == [ACCEPTED]

        assert not (await rig.read(topic))[0].body

    async def test_a_payload_that_is_no_bytes_yet_is_written_as_json(
        self, rig: BusRig, bus: MessageBus
    ) -> None:
        topic = new_topic()

        outcomes = await bus.publish([message(topic, data=None, payload={"total": "9.90"})])

        assert outcomes == [ACCEPTED]
        assert (await rig.read(topic))[0].body == b'{"total":"9.90"}'

    async def test_the_official_package_reads_an_event_in_binary_mode(
        self, rig: BusRig, bus: MessageBus
    ) -> None:
        topic, binding = new_topic(), binding_of(rig)
        odd = odd_event(topic)

        assert await bus.publish([odd]) == [ACCEPTED]

        [stored] = await rig.read(topic)
        assert stored.body == odd.data
        assert_same_event(stored, odd, binding)

    async def test_the_official_package_reads_an_event_in_structured_mode(
        self, rig: BusRig
    ) -> None:
        topic, binding = new_topic(), binding_of(rig)
        bus = structuring(rig).structured_bus()
        odd = odd_event(topic)

        outcomes = await bus.publish([odd])
        await bus.close()

        assert outcomes == [ACCEPTED]
        [stored] = await rig.read(topic)
        assert stored.headers["content-type"].startswith("application/cloudevents+json")
        assert b'"data":{"total": 9.90}' in (stored.body or b"")
        assert_same_event(stored, odd, binding)

    async def test_bytes_in_structured_mode_are_read_as_the_same_bytes(self, rig: BusRig) -> None:
        topic, binding = new_topic(), binding_of(rig)
        bus = structuring(rig).structured_bus()
        sent = message(topic, data=bytes(range(256)), content_type="application/x")

        outcomes = await bus.publish([sent])
        await bus.close()

        assert outcomes == [ACCEPTED]
        event = event_of((await rig.read(topic))[0], binding)
        assert event.get_data() == sent.data


def odd_event(topic: str) -> MessageEnvelope:
    """Return an event whose attributes need care on every wire."""
    return message(
        topic,
        7,
        data=b'{"total": 9.90}',
        key="Größe 100 % 🦊",
        aggregate_id="Größe 100 % 🦊",
        event_type='shop."Bestellt" €',
        tenant_id="acme",
    )


def assert_same_event(stored: Stored, sent: MessageEnvelope, binding: Binding) -> None:
    """Hold a stored event, as the official package reads it, to the one that was sent."""
    event = event_of(stored, binding)
    assert event.get_specversion() == "1.0"
    assert event.get_id() == sent.event_id
    assert event.get_type() == sent.event_type
    assert event.get_source() == "shop"
    assert event.get_subject() == sent.aggregate_id
    assert event.get_time() == sent.occurred_at
    assert event.get_datacontenttype() == "application/json"
    assert event.get_extension("partitionkey") == sent.key
    assert event.get_extension("tenantid") == "acme"
    assert event.get_extension("sequence") == f"{7:019}.{1:06}"
    assert event.get_data() == {"total": 9.9}


def full_headers(rules: BusRules) -> dict[str, str]:
    """Return headers of every allowed sign, as many and as long as the rules allow."""
    longest = "n" * rules.header_name_max_bytes
    made = {f"x{_NAME_MARKS}": _PRINTABLE.strip(), longest: "long"}
    made |= {f"X-{n}": str(n) for n in range(rules.headers_max_count - len(made) - 1)}
    room = rules.headers_max_bytes - sum(len(name) + len(value) for name, value in made.items())
    return made | {"rest": "v" * (room - len("rest"))}
