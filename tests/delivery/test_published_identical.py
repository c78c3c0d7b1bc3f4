"""Accepted means: published identical, byte for byte, on every broker."""

import json
from functools import cache
from typing import Any, NamedTuple

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pillarbox import JsonText, SqlAlchemyOutbox
from pillarbox.errors import InvalidEvent
from pillarbox.event.payload import encode_json
from pillarbox.testing import BusRig, Stored, new_topic
from tests.bus.rigs import BROKERS, rig_for
from tests.delivery.shop import Shop
from tests.outbox.test_round_trip import keys, payloads
from tests.support.database import on

pytestmark = on("postgres18+psycopg")

EXAMPLES = 200
names = st.from_regex(r"[A-Za-z][A-Za-z0-9!#$%&'*+.^_`|~-]{0,30}", fullmatch=True)
# Brokers strip spaces at the ends, so these are refused; what else may be odd is.
values = st.text(max_size=40) | st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E))
headers = st.dictionaries(names | st.text(max_size=8), values, max_size=4)
contents = (
    payloads.map(lambda payload: {"payload": payload})
    | payloads.map(lambda payload: {"payload": JsonText(json.dumps(payload, indent=1))})
    | st.binary(max_size=300).map(
        lambda body: {"payload": body, "content_type": "application/octet-stream"}
    )
    | st.just({"tombstone": True})
)


class Captured(NamedTuple):
    """What was accepted: the bytes, key and headers that must arrive."""

    body: bytes | None
    key: str
    headers: dict[str, str]


@cache
def corpus() -> list[dict[str, Any]]:
    """Draw arguments for `add`; the same ones for every broker."""
    drawn: list[dict[str, Any]] = []

    @settings(max_examples=EXAMPLES, database=None, phases=[Phase.generate])
    @given(content=contents, key=keys, headers=headers)
    def draw(content: dict[str, Any], key: str, headers: dict[str, str]) -> None:
        drawn.append({**content, "key": key, "headers": headers})

    draw()
    return drawn


def body_of(given: dict[str, Any]) -> bytes | None:
    """Say which bytes stand for a payload."""
    match given.get("payload"):
        case _ if "tombstone" in given:
            return None
        case bytes() as body:
            return body
        case JsonText() as written:
            return str(written).encode()
        case payload:
            return encode_json(payload).encode()


@pytest.fixture(params=BROKERS)
def rig(request: pytest.FixtureRequest) -> BusRig:
    """Each broker in turn, on the servers that all tests share."""
    return rig_for(request.getfixturevalue(f"{request.param}_server"))


async def test_what_the_outbox_accepts_arrives_unchanged(shop: Shop, rig: BusRig) -> None:
    topic, bus = new_topic(), rig.bus()
    accepted: dict[str, Captured] = {}
    async with shop.database.sessions() as session:
        outbox = SqlAlchemyOutbox(session)
        for given_ in corpus():
            try:
                added = await outbox.add(topic=topic, **given_)
            except InvalidEvent:
                continue
            accepted[str(added)] = Captured(body_of(given_), given_["key"], given_["headers"])
        await session.commit()

    await shop.projector(message_bus=bus).drain()
    await bus.close()

    stored = {found.event_id: found for found in await rig.read(topic)}
    assert len(accepted) > EXAMPLES / 10
    assert stored.keys() == accepted.keys()
    for event_id, captured in accepted.items():
        arrives(stored[event_id], captured)


def arrives(stored: Stored, captured: Captured) -> None:
    assert (stored.body or b"") == (captured.body or b"")
    # A broker may keep no key beside the message; the header has it in any case.
    assert stored.key in {captured.key, None}
    assert {name: stored.headers.get(name) for name in captured.headers} == captured.headers
