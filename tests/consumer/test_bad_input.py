"""Bad messages through the whole consumer: each is parked with its code, and the loop goes on."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from pillarbox import Context, Pillarbox
from pillarbox.event.incoming import Incoming
from pillarbox.schema.tables import inbox_parked
from tests.consumer.bad_messages import BAD, incoming
from tests.consumer.rig import Effect, Shop, record
from tests.support.database import on

pytestmark = on("postgres18+asyncpg", "sqlite+aiosqlite")
TOPIC = "shop.order"


@dataclass
class Bill:
    order_id: str
    total: Decimal


async def bill(event: Bill, ctx: Context) -> None:
    ctx.session.add(Effect(message_id=ctx.envelope.event_id, key="", n=0))


def box_of(shop: Shop, **environ: str) -> Pillarbox:
    box = Pillarbox(shop.database.engine, shop.bus, service="shop", environ=environ)
    pay = box.consumer("payments", topics=[TOPIC])
    pay.on("OrderCreated")(record)
    pay.on("Billed", schema_version=2)(bill)
    return box


async def parked(shop: Shop) -> Counter[str]:
    async with shop.database.engine.connect() as connection:
        rows = await connection.execute(select(inbox_parked.c.reason))
        return Counter(row.reason for row in rows)


async def test_every_line_of_bad_input_is_parked_with_its_code(shop: Shop) -> None:
    shop.send("before")
    for _, _, changes in BAD:
        shop.bus.put(incoming(**changes))
    shop.send("after")

    await box_of(shop).consumers["payments"].drain()

    assert await parked(shop) == Counter(code for _, code, _ in BAD)
    assert sorted(await shop.effects()) == ["after", "before"]


async def test_messages_that_fit_no_handler_are_parked_with_their_code(shop: Shop) -> None:
    good = b'{"order_id":"o","total":"1","more":[]}'
    for number, (kind, body, headers) in enumerate(
        [
            ("Billed", good, {"schema_version": "2"}),
            ("Unheard", b"{}", {}),
            ("Billed", b"{}", {"schema_version": "3"}),
            ("Billed", b"{}", {"schema_version": "1"}),
            ("Billed", b'{"order_id":"o"}', {"schema_version": "2"}),
            ("Billed", b'{"order_id":"o","total":"much"}', {"schema_version": "2"}),
            ("Billed", b"<bill/>", {"schema_version": "2", "content-type": "text/xml"}),
        ]
    ):
        told: Mapping[str, str] = {"event_id": f"m{number}", "event_type": kind, **headers}
        shop.bus.put(Incoming(TOPIC, "k", told, body))

    await box_of(shop).consumers["payments"].drain()

    assert await shop.effects() == ["m0"]
    assert await parked(shop) == {
        "unknown-type": 1,
        "schema-version": 2,
        "missing-field": 1,
        "invalid-field": 1,
        "wrong-content-type": 1,
    }


async def test_nothing_unreadable_holds_up_its_key(shop: Shop) -> None:
    shop.put("broken", b"{", key="k")
    shop.send("good", key="k", n=1)

    await box_of(shop).consumers["payments"].drain()

    assert await shop.effects("k") == ["good"]


async def test_a_tenant_that_is_missing_or_forged_is_parked(shop: Shop) -> None:
    box = Pillarbox(shop.database.engine, shop.bus, environ={})
    pay = box.consumer("payments", topics=[TOPIC], proven_tenant=lambda _: "acme")
    pay.on("OrderCreated")(record)
    shop.send("good", tenant_id="acme")
    shop.send("forged", tenant_id="evil")

    await pay.drain()

    assert await shop.effects() == ["good"]
    assert await parked(shop) == {"tenant-forged": 1}


texts = st.text(max_size=12)
strange = st.builds(
    Incoming,
    topic=st.just(TOPIC),
    key=st.none() | texts,
    headers=st.dictionaries(
        st.sampled_from(["ce_id", "event_id", "ce_type", "tenant_id", "x-own", "ce_source", "time"])
        | texts,
        st.sampled_from(["OrderCreated", "acme", "\0", "\ud800"]) | texts,
        max_size=6,
    ),
    body=st.none() | st.binary(max_size=20) | st.just(b'{"n":1}'),
    content_type=st.none() | st.just("application/json") | texts,
    message_id=st.none() | texts,
)


@settings(
    max_examples=6,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(messages=st.lists(strange, min_size=50, max_size=100))
async def test_whatever_strangers_send_the_loop_goes_on(
    shop: Shop, messages: list[Incoming]
) -> None:
    await shop.clear()
    for message in messages:
        shop.bus.put(message)
    shop.send("good")

    await box_of(shop).consumers["payments"].drain()

    assert "good" in await shop.effects()


async def ignoring(event: Any) -> None:
    """Take anything."""


async def test_types_that_nobody_wants_are_passed_over_on_request(shop: Shop) -> None:
    box = Pillarbox(shop.database.engine, shop.bus, environ={})
    pay = box.consumer("payments", topics=[TOPIC], ignore_unknown=True)
    pay.on("Other")(ignoring)
    shop.send("unwanted")

    await pay.drain()

    assert await parked(shop) == {}
    assert await shop.count("inbox") == 0
