"""Bad input as data: what is handed in, which error answers, and which field it names."""

import math
from collections import deque, namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import partial
from pathlib import PurePosixPath
from typing import Any

import attrs
from pydantic import BaseModel

from pillarbox.errors import (
    InvalidConfig,
    InvalidEvent,
    InvalidHeader,
    InvalidKey,
    InvalidTime,
    InvalidTopic,
    PayloadNotJson,
    PayloadNotUnicode,
    PayloadTooDeep,
    PayloadTooLarge,
)
from pillarbox.event import rules
from pillarbox.event.encoders import PayloadLimits
from pillarbox.event.payload import check_json_text, encode_json, event_fields

SECRET = "hunter2-s3cr3t"


@dataclass(frozen=True, slots=True)
class BadInput:
    """One refused call; `field` is the setting for configuration errors."""

    name: str
    call: Callable[[], object]
    error: type[InvalidEvent | InvalidConfig]
    field: str


@dataclass
class Money:
    amount: object


@attrs.define
class Parcel:
    weight: object


class Note(BaseModel):
    text: Any


class Broken:
    """A Pydantic look-alike whose dump fails with a secret in its message."""

    def model_dump(self, *, mode: str) -> object:
        raise RuntimeError(SECRET, mode)


class Level(Enum):
    UNKNOWN = math.nan


class Distinct(str):
    """A text that equals nothing but itself, so that a dict holds it beside its plain twin."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


class Shout(str):
    __slots__ = ()


class Ratio(float):
    pass


Point = namedtuple("Point", "x y")  # noqa: PYI024 - an untyped namedtuple is the input under test


def nested(depth: int) -> object:
    value: object = SECRET
    for _ in range(depth):
        value = [value]
    return value


def cyclic_list() -> list[object]:
    items: list[object] = [SECRET]
    items.append(items)
    return items


def cyclic_dict() -> dict[str, object]:
    node: dict[str, object] = {"password": SECRET}
    node["self"] = node
    return node


def cyclic_dataclass() -> Money:
    money = Money(None)
    money.amount = money
    return money


# Refused wherever in a payload they stand; the path after the place is the last column.
BAD_VALUES: tuple[tuple[str, object, type[InvalidEvent], str], ...] = (
    ("nan", math.nan, PayloadNotJson, ""),
    ("infinity", math.inf, PayloadNotJson, ""),
    ("minus infinity", -math.inf, PayloadNotJson, ""),
    ("nan in a float subclass", Ratio("nan"), PayloadNotJson, ""),
    ("decimal nan", Decimal("NaN"), PayloadNotJson, ""),
    ("decimal signalling nan", Decimal("sNaN"), PayloadNotJson, ""),
    ("decimal infinity", Decimal("-Infinity"), PayloadNotJson, ""),
    ("enum of nan", Level.UNKNOWN, PayloadNotJson, ""),
    ("nul", f"{SECRET}\0", PayloadNotJson, ""),
    ("nul in a str subclass", Shout(f"{SECRET}\0"), PayloadNotJson, ""),
    ("high surrogate", f"{SECRET}\ud800", PayloadNotUnicode, ""),
    ("low surrogate", f"\udfff{SECRET}", PayloadNotUnicode, ""),
    ("reversed surrogates", "\udc00\ud800", PayloadNotUnicode, ""),
    ("2^63", 2**63, PayloadNotJson, ""),
    ("-2^63", -(2**63), PayloadNotJson, ""),
    ("2^64", 2**64, PayloadNotJson, ""),
    ("a 5,000 digit integer", 10**5000, PayloadNotJson, ""),
    ("naive datetime", datetime(2024, 1, 1), InvalidTime, ""),  # noqa: DTZ001 - naive on purpose
    ("set", {SECRET}, PayloadNotJson, ""),
    ("frozenset", frozenset({SECRET}), PayloadNotJson, ""),
    ("namedtuple", Point(SECRET, 2), PayloadNotJson, ""),
    ("object", object(), PayloadNotJson, ""),
    ("function", len, PayloadNotJson, ""),
    ("a class", Money, PayloadNotJson, ""),
    ("generator", (n for n in range(3)), PayloadNotJson, ""),
    ("range", range(3), PayloadNotJson, ""),
    ("deque", deque([SECRET]), PayloadNotJson, ""),
    ("complex", 1j, PayloadNotJson, ""),
    ("fraction", Fraction(1, 3), PayloadNotJson, ""),
    ("timedelta", timedelta(seconds=1), PayloadNotJson, ""),
    ("path", PurePosixPath(SECRET), PayloadNotJson, ""),
    ("exception", ValueError(SECRET), PayloadNotJson, ""),
    ("ellipsis", ..., PayloadNotJson, ""),
    ("65 levels", nested(65), PayloadTooDeep, "[0]…"),
    ("300 levels", nested(300), PayloadTooDeep, "[0]…"),
    ("100,000 levels", nested(100_000), PayloadTooDeep, "[0]…"),
    ("cyclic list", cyclic_list(), PayloadNotJson, "[1]"),
    ("cyclic dict", cyclic_dict(), PayloadNotJson, ".self"),
    ("cyclic dataclass", cyclic_dataclass(), PayloadNotJson, ".amount"),
    ("int key", {1: SECRET}, PayloadNotJson, ""),
    ("keys 1 and '1'", {1: SECRET, "1": SECRET}, PayloadNotJson, ""),
    ("none key", {None: SECRET}, PayloadNotJson, ""),
    ("bool key", {True: SECRET}, PayloadNotJson, ""),
    ("tuple key", {(1, SECRET): 1}, PayloadNotJson, ""),
    ("bytes key", {SECRET.encode(): 1}, PayloadNotJson, ""),
    ("nul in a key", {"a\0": SECRET}, PayloadNotJson, ""),
    ("surrogate in a key", {"\ud800": SECRET}, PayloadNotUnicode, ""),
    ("two keys of one text", {Distinct("x"): SECRET, "x": SECRET}, PayloadNotJson, ""),
    ("nan in a dataclass", Money(math.nan), PayloadNotJson, ".amount"),
    ("set in an attrs object", Parcel({SECRET}), PayloadNotJson, ".weight"),
    ("nul in a model", Note(text=f"{SECRET}\0"), PayloadNotJson, ".text"),
    ("model that fails", Broken(), PayloadNotJson, ""),
)
PLACES: tuple[tuple[str, Callable[[object], object]], ...] = (
    ("payload", lambda value: value),
    ("payload.a", lambda value: {"password": SECRET, "a": value}),
    ("payload.items[3].price", lambda value: {"items": [None, 1, "x", {"price": value}]}),
    ('payload["odd key"]', lambda value: {"odd key": value}),
)

BAD_TEXTS: tuple[tuple[str | bytes, type[InvalidEvent], str], ...] = (
    ("", PayloadNotJson, "payload"),
    ("   ", PayloadNotJson, "payload"),
    ("null", PayloadNotJson, "payload"),
    (" null ", PayloadNotJson, "payload"),
    ("{", PayloadNotJson, "payload"),
    ('{"a":1,}', PayloadNotJson, "payload"),
    ("[1,]", PayloadNotJson, "payload"),
    ("{'a':1}", PayloadNotJson, "payload"),
    ("{} {}", PayloadNotJson, "payload"),
    ("01", PayloadNotJson, "payload"),
    ("+1", PayloadNotJson, "payload"),
    (".5", PayloadNotJson, "payload"),
    ("True", PayloadNotJson, "payload"),
    ("// comment\n1", PayloadNotJson, "payload"),
    (f'"{SECRET}', PayloadNotJson, "payload"),
    (f'"{SECRET}\n"', PayloadNotJson, "payload"),
    ('"\\x41"', PayloadNotJson, "payload"),
    ("\ufeff{}", PayloadNotJson, "payload"),
    (b"\xef\xbb\xbf{}", PayloadNotJson, "payload"),
    (b"\xff", PayloadNotUnicode, "payload"),
    ('{"a":1}'.encode("utf-16"), PayloadNotUnicode, "payload"),
    (b'"\xed\xa0\x80"', PayloadNotUnicode, "payload"),
    ('{"a":NaN}', PayloadNotJson, "payload.a"),
    ("[Infinity]", PayloadNotJson, "payload[0]"),
    ("[1, -Infinity]", PayloadNotJson, "payload[1]"),
    (f'{{"a":"{SECRET}","a":2}}', PayloadNotJson, "payload"),
    ('{"x":{"a":1,"a":1}}', PayloadNotJson, "payload.x"),
    ('[{"a":1,"\\u0061":2}]', PayloadNotJson, "payload[0]"),
    ('{"a":1e999}', PayloadNotJson, "payload.a"),
    ("[-1e999]", PayloadNotJson, "payload[0]"),
    ("[1e131071]", PayloadNotJson, "payload[0]"),
    ("[1E+131071]", PayloadNotJson, "payload[0]"),
    ("[1e-131071]", PayloadNotJson, "payload[0]"),
    ("[0e131071]", PayloadNotJson, "payload[0]"),
    ("[1e-400]", PayloadNotJson, "payload[0]"),
    ("[" + "9" * 400 + ".0]", PayloadNotJson, "payload[0]"),
    ("[9223372036854775808]", PayloadNotJson, "payload[0]"),
    ('{"n":-9223372036854775808}', PayloadNotJson, "payload.n"),
    ("[" + "9" * 5000 + "]", PayloadNotJson, "payload[0]"),
    ('{"a":"\\u0000"}', PayloadNotJson, "payload.a"),
    ('{"\\u0000":1}', PayloadNotJson, "payload"),
    ('["\\ud800"]', PayloadNotUnicode, "payload[0]"),
    ('["\\udc00\\ud800"]', PayloadNotUnicode, "payload[0]"),
    ('{"\\ud800":1}', PayloadNotUnicode, "payload"),
    ('["\ud800"]', PayloadNotUnicode, "payload[0]"),
    ("[" * 65 + "]" * 65, PayloadTooDeep, "payload" + "[0]" * 16 + "…"),
    ("[" * 100_000 + "]" * 100_000, PayloadTooDeep, "payload"),
)
BAD_TOPICS: tuple[tuple[str, object], ...] = (
    *((bus, topic) for bus in ("kafka", "nats", "rabbitmq", "pulsar", "redis", "memory")
      for topic in ("", ".", "..", "a b", " a", "a\t", "a*", "a.>", "a#", "a\0", "a\n", "a\ud800",
                    "a" * 250, "a\u200b", None, b"a", 7)),
    ("kafka", "a/b"),
    ("kafka", "a:b"),
    ("kafka", "caf\u00e9"),
    ("nats", ".a"),
    ("nats", "a."),
    ("nats", "a..b"),
    ("nats", "$SYS.a"),
    ("nats", "caf\u00e9"),
    ("rabbitmq", "amq.topic"),
    ("rabbitmq", "\u00e9" * 125),
    ("pulsar", "a/b"),
    ("pulsar", "a/b/c/d"),
    ("pulsar", "persistent://a"),
    ("pulsar", "non-persistent://a/b/c"),
    ("pulsar", "http://a/b/c"),
    ("pulsar", "orders-partition-3"),
)  # fmt: skip
BAD_HEADERS: tuple[tuple[object, str], ...] = (
    ([("a", SECRET)], "headers"),
    (SECRET, "headers"),
    ({1: SECRET}, "headers"),
    ({b"a": SECRET}, "headers"),
    ({"": SECRET}, "headers"),
    ({"a b": SECRET}, "headers"),
    ({"a:b": SECRET}, "headers"),
    ({"a\r\nb": SECRET}, "headers"),
    ({"a\0": SECRET}, "headers"),
    ({"\u00e9": SECRET}, "headers"),
    ({"\ud800": SECRET}, "headers"),
    ({"a" * 129: SECRET}, "headers"),
    ({"A": SECRET, "a": SECRET}, "headers"),
    ({f"h{n}": "v" for n in range(65)}, "headers"),
    ({"a": "v" * 8_192}, "headers"),
    *(({name: SECRET}, f'headers["{name}"]') for name in (
        "content-type", "event_id", "event_type", "tenant_id", "aggregate_id", "aggregate_type",
        "aggregate_version", "event_number", "schema_version", "schema_id", "traceparent",
        "tracestate", "correlationid", "causationid", "cc", "bcc", "Event_ID", "Content-Type", "TraceParent", "Nats-Msg-Id",
        "nats-expected-stream", "__key", "ce_id", "ce-type", "CE_source", "cloudEvents_id",
        "CC", "x-death")),
    *(({"a": value}, 'headers["a"]') for value in (
        None, 1, 1.5, True, SECRET.encode(), [SECRET], f"{SECRET}\r\nX: y", f"{SECRET}\n", "\0",
        "\x7f", "caf\u00e9", "\ud800", "\t", f" {SECRET}", f"{SECRET} ")),
)  # fmt: skip
BAD_KEYS: tuple[object, ...] = (
    "", " ", "a ", " a", "a\n", "a\0b", "a\x7f", "a\x85b", "a\ud800", "a\u2028b", "x" * 256, None,
    7, b"a", "\u00a0a", f"{SECRET}\r",
)  # fmt: skip
BAD_TENANTS: tuple[object, ...] = (
    "", "'", "a'b", "*", "a b", " a", "a\n", "a\0", "-a", ".a", "_a", "a/b", "a" * 65, "\u00e9",
    '"', "a;b", None, 5, b"a", f"{SECRET}!",
)  # fmt: skip
BAD_IDENTIFIERS: tuple[object, ...] = (
    "", 'out"box;--', "a" * 64, "a\0", "a.b", "Outbox", "1a", "a b", "a-b", "a\n", "\u00e9", None,
    7, f"{SECRET}",
)  # fmt: skip
BAD_TIMES: tuple[object, ...] = (
    None,
    "2024-01-01T00:00:00Z",
    0,
    datetime(2024, 1, 1),  # noqa: DTZ001 - naive on purpose
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC),
    datetime(9999, 1, 1, tzinfo=UTC),
    datetime(1970, 1, 1, tzinfo=timezone(timedelta(hours=1))),
    datetime(9998, 12, 31, 23, tzinfo=timezone(timedelta(hours=-2))),
    datetime.max.replace(tzinfo=timezone(timedelta(hours=-12))),
    datetime.min.replace(tzinfo=timezone(timedelta(hours=12))),
)
BAD_BUSES: tuple[str, ...] = ("", "sqs", "http://x", f"user:{SECRET}@host", f"ftp://u:{SECRET}@h")
BAD_DEPTHS: tuple[Any, ...] = (0, -1, 201, 10**9, True, 1.5, None, "64")
BAD_EVENTS: tuple[object, ...] = (None, 7, SECRET, [SECRET], {SECRET}, object(), Money, Broken())


def _payloads() -> Iterator[BadInput]:
    for name, value, error, tail in BAD_VALUES:
        for place, put in PLACES:
            deep = error is PayloadTooDeep
            # Paths stop at 16 steps, so a deep value shows as many as the place leaves over.
            steps = 16 - place.count("[") - place.count(".")
            path = place + ("[0]" * steps + "…" if deep else tail)
            yield BadInput(f"{name} at {place}", partial(encode_json, put(value)), error, path)
    none = partial(encode_json, None)
    yield BadInput("None without tombstone", none, PayloadNotJson, "payload")


def _messages() -> Iterator[BadInput]:
    for text, kind, path in BAD_TEXTS:
        yield BadInput(f"text {text[:20]!r}", partial(check_json_text, text), kind, path)
    for event in BAD_EVENTS:
        call = partial(event_fields, event)
        # A broken model fails while it is read, and that is told of the payload.
        error, field = (PayloadNotJson, "payload") if isinstance(event, Broken) else (
            InvalidEvent, "event")  # fmt: skip
        yield BadInput(f"event {type(event).__name__}", call, error, field)
    for bus in ("kafka", "nats", "rabbitmq", "pulsar", "redis", "memory", None):
        limits = rules.rules_for(bus)
        over = partial(rules.check_size, limits.message_max_bytes, 1, limits)
        yield BadInput(f"one byte over {bus}", over, PayloadTooLarge, "payload")


def _names() -> Iterator[BadInput]:
    check: Any
    for bus, topic in BAD_TOPICS:
        check = partial(rules.check_topic, rules=rules.rules_for(bus))
        yield BadInput(
            f"topic {topic!r:.20} on {bus}", partial(check, topic), InvalidTopic, "topic"
        )
    check = rules.check_topic
    yield from (BadInput(f"portable topic {topic!r:.20} of {bus}", partial(check, topic),
                         InvalidTopic, "topic") for bus, topic in BAD_TOPICS)  # fmt: skip
    check = rules.check_headers
    yield from (BadInput(f"headers {headers!r:.40}", partial(check, headers), InvalidHeader, field)
                for headers, field in BAD_HEADERS)  # fmt: skip
    for field in ("key", "aggregate_id", "event_type", "correlation_id"):
        check = partial(rules.check_key, field)
        yield from (BadInput(f"{field} {key!r:.20}", partial(check, key), InvalidKey, field)
                    for key in BAD_KEYS)  # fmt: skip
    check = rules.check_routing_key
    yield from (BadInput(f"routing key {key!r:.20}", partial(check, key), InvalidKey, "routing_key")
                for key in (*BAD_KEYS, "\u00e9" * 128))  # fmt: skip
    check = rules.check_tenant
    yield from (BadInput(f"tenant {tenant!r:.20}", partial(check, tenant), InvalidKey, "tenant_id")
                for tenant in BAD_TENANTS)  # fmt: skip


def _settings() -> Iterator[BadInput]:
    check: Any = partial(rules.check_identifier, "schema")
    yield from (BadInput(f"schema {name!r:.20}", partial(check, name), InvalidConfig, "schema")
                for name in BAD_IDENTIFIERS)  # fmt: skip
    check = partial(rules.check_time, "deliver_at")
    yield from (BadInput(f"time {time!s}", partial(check, time), InvalidTime, "deliver_at")
                for time in BAD_TIMES)  # fmt: skip
    yield from (BadInput(f"bus {n}", partial(rules.rules_for, bus), InvalidConfig, "bus")
                for n, bus in enumerate(BAD_BUSES))  # fmt: skip
    yield from (BadInput(f"depth {depth}", partial(PayloadLimits, depth), InvalidConfig,
                         "PayloadLimits.depth") for depth in BAD_DEPTHS)  # fmt: skip


BAD_INPUT: tuple[BadInput, ...] = (*_payloads(), *_messages(), *_names(), *_settings())
