"""Consumers on the real brokers: what a broker gives again is known, whoever had it before."""

import asyncio
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest
from sqlalchemy import select

from pillarbox.bus.subscription import SubscriptionRequest
from pillarbox.consumer.loop import ConsumerLoop
from pillarbox.consumer.routes import Routes
from pillarbox.schema.tables import inbox_parked
from pillarbox.testing import RawMessage, SubscriptionRig
from pillarbox.testing.subscription.case import new_request
from pillarbox.testing.subscription.powers import raw_publishing
from tests.bus.subscription_rigs import RIGS
from tests.consumer.bad_messages import BAD, incoming
from tests.consumer.rig import QUICK, Counting, Effect, Shop, record
from tests.support.database import on
from tests.support.waiting import until

pytestmark = on("postgres18+psycopg")
LIMIT = 60.0
NUMBER = "x-number"
MOST_BYTES = 900_000


@pytest.fixture(params=RIGS)
def broker(request: pytest.FixtureRequest) -> SubscriptionRig:
    """Each broker in turn, on the servers that all tests share."""
    return RIGS[request.param](request.getfixturevalue(f"{request.param}_server"))


@pytest.fixture
async def request_(broker: SubscriptionRig) -> SubscriptionRequest:
    """A consumer that its broker knows."""
    made = new_request()
    await broker.prepare(made)
    return made


def loop_of(
    shop: Shop, broker: SubscriptionRig, request: SubscriptionRequest, seen: Counting, batch: int
) -> ConsumerLoop:
    """One more process of a consumer."""
    routes = Routes()
    routes.add("OrderCreated", record)
    routes.add("OrderPaid", record)
    config = replace(QUICK, lanes=1, batch_size=batch)
    subscription = broker.subscription(request)
    return ConsumerLoop(
        request.consumer, routes, subscription, shop.database.sessions, config, observer=seen
    )


async def bodies_parked(shop: Shop) -> Counter[bytes]:
    async with shop.database.engine.connect() as connection:
        rows = await connection.execute(select(inbox_parked.c.body))
        return Counter(row.body for row in rows)


async def end_at_the_first_acknowledgement(loop: ConsumerLoop, seen: Counting) -> None:
    seen.at["acknowledged"] = loop.stop
    async with asyncio.timeout(LIMIT):
        await loop.run_forever()


async def test_what_cannot_be_read_is_parked_though_the_consumer_begins_anew_at_each_message(
    shop: Shop, broker: SubscriptionRig, request_: SubscriptionRequest
) -> None:
    """The second message had the number of the first on a new channel, and was lost as known."""
    bodies = {b"not JSON %d" % number for number in range(4)}
    told = {"event_type": b"Unheard", "event_id": b"same"}
    sent = [RawMessage(body, headers=told) for body in sorted(bodies)]
    await raw_publishing(broker).publish_raw(request_.topics[0], sent)

    for _ in bodies:
        seen = Counting()
        await end_at_the_first_acknowledgement(loop_of(shop, broker, request_, seen, batch=1), seen)

    assert set(await bodies_parked(shop)) == bodies


async def test_every_line_of_bad_input_is_accounted_for_though_the_consumer_begins_anew(
    shop: Shop, broker: SubscriptionRig, request_: SubscriptionRequest
) -> None:
    sent = list(raw_input(broker.name))
    half, seen = len(sent) // 2, Counting()
    await raw_publishing(broker).publish_raw(request_.topics[0], [raw for _, raw in sent])

    first = loop_of(shop, broker, request_, seen, batch=10)
    seen.at["acknowledged"] = lambda: first.stop() if handled(seen) >= half else None
    async with asyncio.timeout(LIMIT):
        await first.run_forever()

    async def missing() -> list[str]:
        found = await numbers_found(shop)
        return [name for number, (name, _) in enumerate(sent) if number not in found]

    async def none_is_missing() -> bool:
        return not await missing()

    async with shop.running(loop_of(shop, broker, request_, Counting(), batch=10)):
        with suppress(AssertionError):  # what is missing says more than that something is
            await until(none_is_missing, "every message is parked or in effect", LIMIT)
    assert await missing() == []


def handled(seen: Counting) -> int:
    return sum(seen.outcomes.values())


def raw_input(broker: str) -> Iterator[tuple[str, RawMessage]]:
    """Yield the bad messages, numbered, as far as the broker takes them from a stranger."""
    number = 0
    for name, _, changes in BAD:
        bad = incoming(**changes)
        told = {**bad.headers, NUMBER: str(number)}
        if told.get("ce_id") == "1":
            told["ce_id"] = f"{NUMBER}{number}"
        if bad.content_type is not None:
            told["content-type"] = bad.content_type
        headers = {n: value.encode(errors="surrogatepass") for n, value in told.items()}
        if len(bad.body or b"") <= MOST_BYTES and broker_takes(broker, headers):
            body = b'{"n":%d}' % number if bad.body == b'{"n":1}' else bad.body
            key = None if bad.key is None else bad.key.encode(errors="surrogatepass")
            yield name, RawMessage(body, key, headers)
            number += 1


def broker_takes(broker: str, headers: dict[str, bytes]) -> bool:
    """Tell whether a broker stores such headers: NATS has them as lines, in 64 KiB altogether."""
    size = sum(len(name) + len(value) for name, value in headers.items())
    return broker != "nats" or (size < 65_000 and not any(b"\n" in v for v in headers.values()))


async def numbers_found(shop: Shop) -> set[int]:
    """Return the numbers of messages that are in the table, or were readable and took effect."""
    columns = inbox_parked.c
    async with shop.database.engine.connect() as connection:
        rows = (await connection.execute(select(columns.headers, columns.body))).all()
        effects = (await connection.scalars(select(Effect.n))).all()
    parked = {number_of(row.headers, row.body) for row in rows}
    return {int(found) for found in (*parked, *effects) if found is not None}


def number_of(headers: dict[str, str], body: bytes | None) -> str | None:
    """Return a message's number; some clients hand out all headers or none, then its body has it."""
    plain = re.fullmatch(rb'{"n":(\d+)}', body or b"")
    return headers.get(NUMBER, plain[1].decode() if plain else None)


async def test_equal_messages_that_cannot_be_read_leave_a_row_that_says_what_they_say(
    shop: Shop, broker: SubscriptionRig, request_: SubscriptionRequest
) -> None:
    await raw_publishing(broker).publish_raw(request_.topics[0], [RawMessage(b"?")] * 3)
    seen = Counting()

    async def all_ended() -> bool:
        return sum(seen.outcomes.values()) == 3

    async with shop.running(loop_of(shop, broker, request_, seen, batch=100)):
        await until(all_ended, "all have ended", LIMIT)

    assert set(await bodies_parked(shop)) == {b"?"}
