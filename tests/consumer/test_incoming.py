"""What is read from a broker: held to the official package, to our own buses, and to bad input."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, get_args

import pytest
from cloudevents.core.bindings import amqp, http, kafka, rabbitmq
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given, settings
from hypothesis import strategies as st

from pillarbox.consumer.identify import by_content
from pillarbox.event.cloudevents import (
    STRUCTURED_CONTENT,
    HeaderMaker,
    binary_headers,
    source_uri,
    structured_body,
    structured_headers,
)
from pillarbox.event.encoders import PayloadLimits
from pillarbox.event.envelope import JSON_CONTENT, MessageEnvelope
from pillarbox.event.incoming import Flaw, Incoming, ReadingRules, Unreadable
from pillarbox.event.payload import encode_json
from pillarbox.event.reading import read
from tests.consumer.bad_messages import BAD, headers, incoming, nested, whole

BINDINGS: Mapping[str, HeaderMaker] = {
    "kafka": binary_headers("ce_"),
    "nats": binary_headers("ce-", percent=True, content_type="ce-datacontenttype"),
    "rabbitmq": binary_headers("cloudEvents_"),
}
TRACE = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
FIRST, LAST = datetime.fromisoformat("1970-01-02"), datetime.fromisoformat("9998-12-30")
thorough = settings(max_examples=200, database=None)

words = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1, max_size=30
).filter(lambda text: text.strip() == text)
# As a URI each character may take twelve.
short_words = words.filter(lambda text: len(text) <= 20)
ascii_words = st.from_regex(r"[!-~]{1,20}", fullmatch=True)
contents = st.dictionaries(
    words, st.none() | st.booleans() | words | st.integers(-9, 9), max_size=4
)
envelopes = st.builds(
    MessageEnvelope,
    event_id=st.uuids().map(str),
    event_type=words,
    payload=st.none(),
    content_type=st.just(JSON_CONTENT),
    routing_key=st.none(),
    data=contents.map(lambda value: encode_json(value).encode()),
    topic=st.just("shop.order"),
    key=st.none() | words,
    tenant_id=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True),
    source=short_words,
    occurred_at=st.none()
    | st.datetimes(FIRST, LAST, timezones=st.just(UTC)),
    aggregate_type=st.none() | words,
    aggregate_id=st.none() | words,
    aggregate_version=st.none() | st.integers(0, 2**63 - 1),
    event_number=st.none() | st.integers(0, 999_999),
    schema_id=st.none() | words,
    schema_version=st.integers(1, 99),
    headers=st.fixed_dictionaries(
        {}, optional={"x-own": ascii_words, "correlationid": ascii_words, "traceparent": st.just(TRACE)}
    ),
)  # fmt: skip


def readable(message: Incoming, **options: Any) -> MessageEnvelope:
    found = read(message, **options)
    assert isinstance(found, MessageEnvelope), found
    return found


def flaw(message: Incoming, **options: Any) -> str:
    found = read(message, **options)
    assert isinstance(found, Unreadable), found
    return found.code


def as_read(envelope: MessageEnvelope) -> MessageEnvelope:
    """Say what a consumer must find of an envelope."""
    body = envelope.body()
    return envelope._replace(
        payload=None if body is None else json.loads(body), source=source_uri(envelope.source)
    )


@pytest.mark.parametrize("binding", BINDINGS)
@thorough
@given(envelope=envelopes)
def test_what_our_buses_write_in_binary_mode_is_read_as_it_was(
    binding: str, envelope: MessageEnvelope
) -> None:
    headers = dict(BINDINGS[binding](envelope))
    key = None if binding == "nats" else envelope.key

    found = readable(Incoming("shop.order", key, headers, envelope.body()))

    assert found == as_read(envelope)


@thorough
@given(envelope=envelopes)
def test_what_our_buses_write_in_structured_mode_is_read_as_it_was(
    envelope: MessageEnvelope,
) -> None:
    headers = dict(structured_headers(envelope))

    found = readable(Incoming("shop.order", None, headers, structured_body(envelope)))

    assert found == as_read(envelope)


@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize("body", [None, b""])
def test_a_tombstone_is_read_as_one(binding: str, body: bytes | None) -> None:
    tombstone = MessageEnvelope("1", "OrderGone", topic="t", key="k", source="shop")

    found = readable(Incoming("t", "k", dict(BINDINGS[binding](tombstone)), body))

    assert found == tombstone


def test_bytes_stay_bytes_in_both_modes() -> None:
    image = MessageEnvelope(
        "1", "Scanned", data=bytes(range(256)), content_type="image/png", topic="t", source="s"
    )
    binary = Incoming("t", None, dict(BINDINGS["kafka"](image)), image.data)
    whole = Incoming("t", None, dict(structured_headers(image)), structured_body(image))

    assert readable(binary) == readable(whole) == image._replace(payload=image.data)


OFFICIAL = CloudEvent(
    {
        "id": "a-1",
        "type": "com.example.paid",
        "source": "/shop/7",
        "subject": "order-7",
        "time": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "datacontenttype": "application/json",
        "partitionkey": "k-7",
        "myextension": "own",
    },
    {"total": 9.5, "name": "Größe"},
)


def official_messages() -> dict[str, Incoming]:
    """Return one event as the official package writes it for each binding."""
    kafka_made = {
        "kafka-binary": kafka.to_binary_event(OFFICIAL),
        "kafka-structured": kafka.to_structured_event(OFFICIAL),
    }
    made = {
        name: Incoming(
            "t",
            str(found.key),
            {header: value.decode() for header, value in found.headers.items()},
            found.value,
        )
        for name, found in kafka_made.items()
    }
    for name, sent in {
        "http-binary": http.to_binary_event(OFFICIAL),
        "http-structured": http.to_structured_event(OFFICIAL),
    }.items():
        made[name] = Incoming("t", None, sent.headers, sent.body)
    for name, placed in {
        "amqp-binary": amqp.to_binary_event(OFFICIAL),
        "amqp-structured": amqp.to_structured_event(OFFICIAL),
    }.items():
        properties = {
            header: str(datetime.fromtimestamp(value / 1000, UTC) if "time" in header else value)
            for header, value in placed.application_properties.items()
        }
        kind = str(placed.properties["content-type"])
        made[name] = Incoming("t", None, properties, placed.application_data, kind)
    rabbit = rabbitmq.to_binary_event(OFFICIAL)
    made["rabbitmq-binary"] = Incoming("t", None, rabbit.headers, rabbit.body, rabbit.content_type)
    return made


@pytest.mark.parametrize("form", official_messages())
def test_what_the_official_package_writes_is_read(form: str) -> None:
    found = readable(official_messages()[form])

    assert (found.event_id, found.event_type, found.source) == (
        "a-1",
        "com.example.paid",
        "/shop/7",
    )
    assert (found.aggregate_id, found.key, found.tenant_id) == ("order-7", "k-7", "default")
    assert found.occurred_at == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert found.payload == {"total": 9.5, "name": "Größe"}
    assert found.headers == {"ce_myextension": "own"}


def test_plain_headers_are_enough() -> None:
    headers = {"event_id": "1", "event_type": "OrderPaid", "tenant_id": "acme", "x-own": "a"}

    found = readable(incoming(headers=headers))

    assert (found.event_id, found.event_type, found.tenant_id) == ("1", "OrderPaid", "acme")
    assert found.headers == {"x-own": "a"}


def test_a_message_without_headers_has_the_brokers_id_and_its_topic_for_a_type() -> None:
    found = readable(incoming(headers={}, message_id="stream:7"))

    assert (found.event_id, found.event_type, found.payload) == ("stream:7", "shop.order", {"n": 1})


def test_an_id_may_be_made_from_the_content_where_that_is_declared() -> None:
    one, other = incoming(headers={}, message_id="7"), incoming(headers={}, key="k2")

    assert readable(one, identify=by_content).event_id == by_content(one)
    assert by_content(one) == by_content(one._replace(message_id="8")) != by_content(other)
    assert by_content(incoming(topic="ab", key="c")) != by_content(incoming(topic="a", key="bc"))


def test_the_brokers_headers_do_not_become_the_producers() -> None:
    headers = {"ce_id": "1", "Nats-Msg-Id": "1", "__internal": "x", "x-death": "x", "x-own": "a"}

    assert readable(incoming(headers=headers)).headers == {"x-own": "a"}


def test_the_trace_of_the_transport_wins_over_that_of_the_event() -> None:
    headers = {"ce_id": "1", "ce_traceparent": "old", "ce_correlationid": "c", "traceparent": TRACE}

    found = readable(incoming(headers=headers))

    assert found.headers == {"traceparent": TRACE, "correlationid": "c"}


@pytest.mark.parametrize(
    ("sequence", "place"),
    [
        ("0000000000000000012.000003", (12, 3)),
        ("0000000000000000012", (12, None)),
        ("12", (None, None)),
        ("of another kind", (None, None)),
    ],
)
def test_a_sequence_is_a_version_only_in_our_own_form(
    sequence: str, place: tuple[int | None, int | None]
) -> None:
    found = readable(incoming(headers={"ce_id": "1", "ce_sequence": sequence}))

    assert (found.aggregate_version, found.event_number) == place


@pytest.mark.parametrize(("what", "code", "changes"), BAD, ids=[line[0] for line in BAD])
def test_bad_input_gets_a_code(what: str, code: str, changes: dict[str, Any]) -> None:
    assert flaw(incoming(**changes)) == code


def test_a_reason_names_no_value() -> None:
    secret = "s3cr3t"
    bodies = [b'{"a":"%b","a":1}' % secret.encode(), b'{"%b' % secret.encode()]
    odd = [incoming(body=body) for body in bodies]
    odd += [incoming(**headers(ce_time=secret)), incoming(**headers(tenant_id=f"'{secret}"))]

    found = [read(message) for message in odd]

    assert all(isinstance(answer, Unreadable) for answer in found)
    assert secret not in str(found)


def test_the_last_of_two_equal_keys_counts_when_strictness_is_given_up() -> None:
    lenient = ReadingRules(strict=False)

    assert readable(incoming(body=b'{"a":1,"a":2}'), rules=lenient).payload == {"a": 2}


def test_the_limits_are_those_of_the_rules() -> None:
    deep = ReadingRules(limits=PayloadLimits(depth=200))
    whole_deep = incoming(**whole(data=json.loads(nested(199))))

    assert readable(incoming(body=nested(200)), rules=deep).data == nested(200)
    assert readable(whole_deep, rules=deep).data == nested(199)
    assert flaw(incoming(), rules=ReadingRules(max_bytes=3)) == "too-large"


def test_a_long_id_is_kept_for_the_inbox_to_hash() -> None:
    assert readable(incoming(**headers(ce_id="x" * 5_000))).event_id == "x" * 5_000


def test_a_failing_identify_is_no_end_of_the_loop() -> None:
    def identify(_message: Incoming) -> str:
        raise LookupError

    assert flaw(incoming(headers={}), identify=identify) == "no-id"


@pytest.mark.parametrize("made", [7, b"id", ["a"], object()])
def test_an_identify_that_makes_no_text_is_no_end_of_the_loop(made: Any) -> None:
    assert flaw(incoming(headers={}), identify=lambda _message: made) == "invalid-id"


def test_a_required_tenant_must_be_named() -> None:
    required = ReadingRules(tenant_required=True)

    assert flaw(incoming(), rules=required) == "tenant-required"
    assert readable(incoming(**headers(tenant_id="acme")), rules=required).tenant_id == "acme"


def test_a_tenant_that_the_topic_does_not_prove_is_forged() -> None:
    def topics_tenant(message: Incoming) -> str | None:
        return message.topic.partition(".")[0] if "." in message.topic else None

    by_topic = ReadingRules(tenant_required=True, proven_tenant=topics_tenant)
    named = incoming(topic="acme.order", **headers(tenant_id="acme"))

    assert readable(named, rules=by_topic).tenant_id == "acme"
    assert readable(incoming(topic="acme.order"), rules=by_topic).tenant_id == "acme"
    assert flaw(named._replace(topic="evil.order"), rules=by_topic) == "tenant-forged"
    assert flaw(named._replace(topic="order"), rules=by_topic) == "tenant-forged"


anything = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        ["", "1.0", "%", "%zz", "0000000000000000001.000001", "\0", "\ud800", "9" * 40]
    ),
)
names = st.sampled_from(
    ["ce_id", "ce-id", "Ce-Type", "ce_time", "cloudEvents:source", "cloudEvents_sequence",
     "ce_specversion", "ce_partitionkey", "ce_tenantid", "ce_", "event_id", "event_type",
     "tenant_id", "schema_version", "aggregate_version", "event_number", "content-type",
     "Content-Encoding", "traceparent", "x-own"]
) | st.text(max_size=10)  # fmt: skip
kinds = st.none() | st.text(max_size=20) | st.sampled_from(
    ["application/json", "text/plain", STRUCTURED_CONTENT, "application/cloudevents", "a/b+json"]
)  # fmt: skip
bodies = st.none() | st.binary(max_size=60) | st.sampled_from(
    [b"{}", b"null", b"[1]", b'{"specversion":"1.0","id":1,"data":null}', b'{"id":"1","data":[NaN]}',
     b'{"id":"1","data_base64":null,"time":true}', nested(5_000)]
)  # fmt: skip


@settings(max_examples=1_000, database=None)
@given(
    headers=st.dictionaries(names, anything, max_size=8),
    body=bodies,
    kind=kinds,
    key=st.none() | anything,
    message_id=st.none() | anything,
)
def test_nothing_that_a_stranger_sends_raises(
    headers: dict[str, str], body: bytes | None, kind: str | None, key: str | None, message_id: str
) -> None:
    found = read(Incoming("t", key, headers, body, kind, message_id))

    assert isinstance(found, MessageEnvelope) or found.code in get_args(Flaw)
