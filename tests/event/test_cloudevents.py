"""Held to the CloudEvents 1.0 specification by reading back what is written."""

import base64
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote

import pytest

from pillarbox.event.cloudevents import (
    binary_headers,
    is_structured,
    percent_encoded,
    sequence,
    structured_body,
    structured_headers,
)
from pillarbox.event.envelope import MessageEnvelope

KAFKA = binary_headers("ce_")
NATS = binary_headers("ce-", percent=True, content_type="ce-datacontenttype")
TRACE = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
REQUIRED = {"id", "source", "specversion", "type"}

FULL = MessageEnvelope(
    event_id="0190c0de-0000-7000-8000-000000000001",
    event_type="OrderPaid",
    data=b'{"total": 9.90}',
    topic="shop.order",
    key="order-7",
    tenant_id="acme",
    source="shop",
    occurred_at=datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC),
    aggregate_type="Order",
    aggregate_id="order-7",
    aggregate_version=12,
    event_number=2,
    schema_id="orders-1",
    schema_version=3,
    headers={"traceparent": TRACE, "correlationid": "c 1", "x-own": "kept as it is"},
)
BARE = MessageEnvelope(event_id="1", event_type="Ping", data=b"{}")


def attributes(headers: list[tuple[str, str]], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): v for name, v in headers if name.startswith(prefix)}


def structured(envelope: MessageEnvelope) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(structured_body(envelope))
    return parsed


@pytest.mark.parametrize("envelope", [FULL, BARE])
def test_every_form_has_the_required_attributes_under_legal_names(
    envelope: MessageEnvelope,
) -> None:
    forms = (
        attributes(KAFKA(envelope), "ce_"),
        attributes(NATS(envelope), "ce-"),
        {k: v for k, v in structured(envelope).items() if k not in {"data", "data_base64"}},
    )

    for form in forms:
        assert form.keys() >= REQUIRED
        assert all(re.fullmatch(r"[a-z0-9]{1,20}", name) for name in form)
        assert all(isinstance(value, str) and value for value in form.values())
        assert form["specversion"] == "1.0"


def test_the_three_forms_say_the_same() -> None:
    body = structured(FULL)
    del body["data"]

    kafka = attributes(KAFKA(FULL), "ce_") | {"datacontenttype": dict(KAFKA(FULL))["content-type"]}
    nats = {name: unquote(value) for name, value in attributes(NATS(FULL), "ce-").items()}

    assert kafka == nats == body
    assert body == {
        "specversion": "1.0",
        "id": FULL.event_id,
        "type": "OrderPaid",
        "source": "shop",
        "subject": "order-7",
        "time": "2026-01-02T03:04:05.000678+00:00",
        "datacontenttype": "application/json",
        "partitionkey": "order-7",
        "tenantid": "acme",
        "sequence": "0000000000000000012.000002",
        "traceparent": TRACE,
        "correlationid": "c 1",
    }


def test_plain_headers_carry_what_is_set() -> None:
    full, bare = dict(KAFKA(FULL)), dict(KAFKA(BARE))

    assert (
        full.items()
        >= {
            "event_id": FULL.event_id,
            "event_type": "OrderPaid",
            "tenant_id": "acme",
            "aggregate_id": "order-7",
            "aggregate_type": "Order",
            "aggregate_version": "12",
            "event_number": "2",
            "schema_version": "3",
            "schema_id": "orders-1",
            "traceparent": TRACE,
            "x-own": "kept as it is",
        }.items()
    )
    assert not bare.keys() & {"aggregate_id", "aggregate_version", "event_number", "schema_id"}
    assert "ce_partitionkey" not in bare


@pytest.mark.parametrize("envelope", [FULL, BARE])
def test_no_header_comes_twice(envelope: MessageEnvelope) -> None:
    for headers in (KAFKA(envelope), NATS(envelope), structured_headers(envelope)):
        names = [name.lower() for name, _ in headers]
        assert len(set(names)) == len(names)


def test_a_tombstone_has_no_content_type_and_is_never_structured() -> None:
    tombstone = FULL._replace(data=None)

    assert "content-type" not in dict(KAFKA(tombstone))
    assert not is_structured(tombstone, "structured")
    assert is_structured(FULL, "structured")


def test_a_structured_event_names_its_form_and_keeps_the_plain_headers() -> None:
    headers = dict(structured_headers(FULL))

    assert headers["content-type"].lower().startswith("application/cloudevents+json")
    assert headers["event_id"] == FULL.event_id
    assert not attributes(list(headers.items()), "ce_")


@pytest.mark.parametrize(
    "content_type", ["application/json", "text/json; a=b", "application/x+JSON"]
)
def test_a_json_payload_stands_in_a_structured_event_byte_for_byte(content_type: str) -> None:
    written = b'{ "n": 1.50, "big": 123456789012345678901234567890 }'

    body = structured_body(FULL._replace(data=written, content_type=content_type))

    assert b'"data":' + written in body
    assert json.loads(body)["data"]["n"] == 1.5


@pytest.mark.parametrize("content_type", ["application/octet-stream", "text/plain", "x/notjson"])
def test_another_payload_is_written_in_base64(content_type: str) -> None:
    written = bytes(range(256))

    event = structured(FULL._replace(data=written, content_type=content_type))

    assert base64.b64decode(event["data_base64"]) == written
    assert "data" not in event


def test_values_outside_printable_ascii_are_percent_encoded_where_the_bus_asks() -> None:
    odd = FULL._replace(key='Größe "7" 100%', aggregate_id="Größe", event_type="Bezahlt €")

    encoded = attributes(NATS(odd), "ce-")

    assert encoded["partitionkey"] == "Gr%C3%B6%C3%9Fe%20%227%22%20100%25"
    assert unquote(encoded["type"]) == "Bezahlt €"
    assert dict(KAFKA(odd))["ce_partitionkey"] == 'Größe "7" 100%'


def test_exactly_the_characters_that_the_specification_names_are_encoded() -> None:
    kept = "".join(chr(c) for c in range(0x21, 0x7F) if chr(c) not in '"%')

    assert percent_encoded(kept) == kept
    assert percent_encoded(' "%') == "%20%22%25"
    assert percent_encoded("€") == "%E2%82%AC"


def test_a_source_is_a_uri_reference() -> None:
    assert dict(KAFKA(FULL._replace(source="my shop")))["ce_source"] == "my%20shop"
    assert dict(KAFKA(FULL._replace(source=None)))["ce_source"] == "default"


def test_sequences_sort_as_versions_and_numbers_do() -> None:
    pairs = [(1, 1), (1, 2), (1, 10), (2, 1), (10, 1), (10**18, 9)]

    assert sorted(sequence(str(v), str(n)) for v, n in pairs) == [
        sequence(str(v), str(n)) for v, n in pairs
    ]


def test_a_time_is_written_with_its_offset() -> None:
    moment = FULL.occurred_at
    assert moment is not None

    written = dict(KAFKA(FULL))["ce_time"]

    assert datetime.fromisoformat(written) == moment
    assert datetime.fromisoformat(written).utcoffset() == timedelta(0)
