"""The rules of every bus are data, and names, headers, times and sizes are held to them."""

from dataclasses import fields
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum

import pytest

from pillarbox.errors import InvalidHeader, InvalidKey, InvalidTopic, PayloadTooLarge
from pillarbox.event.rules import (
    KAFKA,
    MEMORY,
    NATS,
    PORTABLE,
    PULSAR,
    RABBITMQ,
    REDIS,
    BusRules,
    check_headers,
    check_identifier,
    check_key,
    check_routing_key,
    check_size,
    check_tenant,
    check_time,
    check_topic,
    header_size,
    rules_for,
    strictest,
)

BUSES = (KAFKA, NATS, RABBITMQ, PULSAR, REDIS, MEMORY)


class Kind(StrEnum):
    ORDER = "order"


@pytest.mark.parametrize(
    ("bus", "topic"),
    [
        (KAFKA, "a" * 249),
        (KAFKA, "Orders_v1.order-created"),
        (KAFKA, "a..b"),
        (NATS, "orders.order.created"),
        (NATS, "orders.a$b"),
        (RABBITMQ, "orders.café"),
        (RABBITMQ, "é" * 124),
        (PULSAR, "orders.order"),
        (PULSAR, "tenant/ns/name"),
        (PULSAR, "persistent://tenant/ns/name"),
        (REDIS, "stream:{orders}"),
        (MEMORY, "orders"),
    ],
)
def test_a_topic_that_the_bus_takes_is_returned(bus: BusRules, topic: str) -> None:
    assert check_topic(topic, bus) == topic


@pytest.mark.parametrize("topic", ["orders.order", "a", "orders.order-created_v1", "a" * 249])
def test_a_portable_topic_is_taken_by_every_bus(topic: str) -> None:
    assert check_topic(topic) == topic
    assert all(check_topic(topic, bus) == topic for bus in BUSES)


@pytest.mark.parametrize("topic", ["a..b", "a/b/c", "$a", "café", "amq.a", "a-partition-0", "a:b"])
def test_a_topic_that_one_broker_refuses_is_not_portable(topic: str) -> None:
    with pytest.raises(InvalidTopic):
        check_topic(topic)


def test_the_portable_limits_are_the_smallest_of_the_brokers() -> None:
    limits = [field.name for field in fields(BusRules) if field.name.endswith(("bytes", "count"))]

    for limit in limits:
        assert getattr(PORTABLE, limit) == min(getattr(bus, limit) for bus in BUSES[:-1])
    assert len(limits) == 6


def test_the_strictest_of_two_buses_keeps_the_rules_of_both() -> None:
    both = strictest(NATS, PULSAR)

    assert both.name == "nats+pulsar"
    assert both.message_max_bytes == NATS.message_max_bytes
    with pytest.raises(InvalidTopic):
        check_topic("a..b", both)
    with pytest.raises(InvalidTopic):
        check_topic("a-partition-1", both)


@pytest.mark.parametrize(
    ("bus", "expected"),
    [
        (None, PORTABLE),
        ("kafka", KAFKA),
        ("kafka://host:9092", KAFKA),
        ("kafka+ssl://host", KAFKA),
        ("nats://user:pw@host", NATS),
        ("tls://host", NATS),
        ("amqp://guest:guest@host/", RABBITMQ),
        ("AMQPS://host", RABBITMQ),
        ("rabbitmq", RABBITMQ),
        ("pulsar+ssl://host", PULSAR),
        ("redis://host/0", REDIS),
        ("rediss://host", REDIS),
        ("memory://", MEMORY),
    ],
)
def test_the_rules_are_found_by_name_or_url(bus: str | None, expected: BusRules) -> None:
    assert rules_for(bus) is expected


@pytest.mark.parametrize("bus", [*BUSES, PORTABLE], ids=lambda bus: bus.name)
def test_a_message_of_exactly_the_limit_passes_and_one_byte_more_does_not(bus: BusRules) -> None:
    check_size(bus.message_max_bytes - 10, 10, bus)

    with pytest.raises(PayloadTooLarge) as caught:
        check_size(bus.message_max_bytes - 10, 11, bus)

    assert (caught.value.size, caught.value.limit) == (
        bus.message_max_bytes + 1,
        bus.message_max_bytes,
    )
    assert caught.value.bus == bus.name


def test_the_size_error_reads_as_in_the_documentation() -> None:
    with pytest.raises(PayloadTooLarge, match="1,048,577 bytes > 1,048,576 for nats"):
        check_size(1_048_577, 0, NATS)


def test_headers_come_back_as_a_copy_joined_with_our_own() -> None:
    given = {"x-request": "abc", "X_Other.1": ""}

    checked = check_headers(given, own={"traceparent": "00-a-b-01"})
    given["later"] = "x"

    assert checked == {"x-request": "abc", "X_Other.1": "", "traceparent": "00-a-b-01"}


@pytest.mark.parametrize("headers", [None, {}])
def test_no_headers_are_no_headers(headers: dict[str, str] | None) -> None:
    assert check_headers(headers) == {}


def test_our_own_headers_are_checked_for_their_values_too() -> None:
    with pytest.raises(InvalidHeader, match="tracestate"):
        check_headers(None, own={"tracestate": "a=b\r\nNats-Msg-Id: 1"})


def test_headers_up_to_the_limits_pass() -> None:
    assert len(check_headers({f"h{n}": "v" for n in range(64)})) == 64
    assert check_headers({"a" * 128: "v"})
    assert check_headers({"a": "v" * 8_191})


def test_our_own_headers_count_towards_the_total() -> None:
    with pytest.raises(InvalidHeader, match="65 entries > 64"):
        check_headers({f"h{n}": "v" for n in range(64)}, own={"traceparent": "x"})


def test_the_size_of_headers_counts_names_values_and_framing() -> None:
    assert header_size({"ab": "cde", "f": ""}) == 2 + 3 + 4 + 1 + 4


@pytest.mark.parametrize(
    "key", ["a", "x" * 255, "order 7", "é" * 255, "👩\u200d👧", "a\u00a0b", "'; drop table", "*"]
)
def test_a_key_that_is_safe_text_is_returned(key: str) -> None:
    assert check_key("key", key) == key


def test_a_key_of_a_str_subclass_becomes_plain_text() -> None:
    assert type(check_key("key", Kind.ORDER)) is str
    assert type(check_topic(Kind.ORDER)) is str
    assert type(check_tenant(Kind.ORDER)) is str


def test_a_key_may_have_a_length_limit_of_its_own() -> None:
    assert check_key("routing_key", "x" * 100, 100)
    with pytest.raises(InvalidKey, match="101 characters > 100"):
        check_key("routing_key", "x" * 101, 100)


def test_a_routing_key_is_limited_in_bytes() -> None:
    assert check_routing_key("é" * 127) == "é" * 127
    with pytest.raises(InvalidKey, match="256 bytes > 255"):
        check_routing_key("é" * 128, RABBITMQ)


@pytest.mark.parametrize("tenant", ["default", "A", "0", "a.b_c-d", "a" * 64])
def test_a_tenant_of_plain_letters_passes(tenant: str) -> None:
    assert check_tenant(tenant) == tenant


@pytest.mark.parametrize("name", ["outbox", "_x", "a1", "a" * 63])
def test_a_plain_database_name_passes(name: str) -> None:
    assert check_identifier("schema", name) == name


def test_a_time_comes_back_in_utc() -> None:
    moment = datetime(2024, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))

    checked = check_time("deliver_at", moment)

    assert checked == moment
    assert checked.tzinfo is UTC


@pytest.mark.parametrize(
    "moment",
    [datetime(1970, 1, 1, tzinfo=UTC), datetime(9998, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)],
)
def test_the_first_and_the_last_moment_pass(moment: datetime) -> None:
    assert check_time("deliver_at", moment) == moment
