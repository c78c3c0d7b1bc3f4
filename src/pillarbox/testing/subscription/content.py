"""What arrives is what was sent, whoever sent it."""

import pytest

from pillarbox.testing.contract.content import ODD_BODIES
from pillarbox.testing.messages import message
from pillarbox.testing.subscription.case import Group, SubscriptionCase, ids_of
from pillarbox.testing.subscription.powers import raw_publishing
from pillarbox.testing.subscription.rig import RawMessage, SubscriptionRig


class ContentContract(SubscriptionCase):
    """Bodies, headers and keys arrive unchanged; nothing that a stranger sends stops the others."""

    @pytest.mark.parametrize("body", ODD_BODIES, ids=len)
    async def test_odd_bodies_arrive_byte_for_byte(self, group: Group, body: bytes) -> None:
        member = await group.join()

        await group.publish([message(group.topic, data=body, content_type="application/x")])
        [delivery] = await member.take(1)

        # Compared as a truth value: a difference of megabytes is not worth showing.
        assert (delivery.message.body == body) is True

    async def test_headers_and_names_arrive_as_they_stand_on_the_wire(self, group: Group) -> None:
        member = await group.join()
        own = {"X-Trace.Id_1": 'a "quoted" % value: with=signs', "traceparent": "00-" + "a" * 52}
        sent = message(group.topic, key="Größe 🦊", aggregate_id="Größe 🦊", headers=own)

        await group.publish([sent])
        [delivery] = await member.take(1)

        found = delivery.message
        assert found.topic == group.topic
        assert {name: found.headers[name] for name in own} == own
        assert found.headers["aggregate_id"] == "Größe 🦊"
        assert found.key in {"Größe 🦊", None}
        assert ids_of([delivery]) == [sent.event_id]

    async def test_a_tombstone_has_no_content(self, group: Group) -> None:
        member = await group.join()

        await group.publish([message(group.topic, data=None)])
        [delivery] = await member.take(1)

        assert not delivery.message.body

    async def test_what_strangers_send_is_delivered_and_stops_nobody(
        self, rig: SubscriptionRig, group: Group
    ) -> None:
        member = await group.join()
        strange = [
            RawMessage(b"no headers, no key"),
            RawMessage(b"", headers={"event_id": b""}),
            RawMessage(None),
            RawMessage(b"not text", b"k\xff\xfe", {"event_id": b"\xff\xfe", "x": b"\x80"}),
            RawMessage(b"not text either", b"k", {"event_id": b"\xff\xfd", "x": "ü".encode()}),
            RawMessage(b"\xff" * 1_000, headers={"content-type": b"application/json"}),
            RawMessage(b"the last"),
        ]

        await raw_publishing(rig).publish_raw(group.topic, strange)
        taken = await member.take(len(strange))
        await member.subscription.acknowledge(taken)

        bodies = [delivery.message.body or b"" for delivery in taken]
        assert bodies == [raw.body or b"" for raw in strange]
        for delivery in taken:
            for text in (delivery.message.key or "", *delivery.message.headers.values()):
                assert text.encode().decode() == text

    async def test_ids_that_are_no_text_stay_different(
        self, rig: SubscriptionRig, group: Group
    ) -> None:
        member = await group.join()
        odd = [RawMessage(b"x", headers={"event_id": bytes([n, 0xFF])}) for n in (0xFD, 0xFE)]

        await raw_publishing(rig).publish_raw(group.topic, odd)
        taken = await member.take(2)

        found = [delivery.message.headers.get("event_id") for delivery in taken]
        assert found == [None, None] or len(set(found)) == len(odd)
