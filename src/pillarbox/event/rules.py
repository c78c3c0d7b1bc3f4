"""What each bus accepts, as data, and the checks that apply it where an event is recorded.

Messages name fields, limits and types, never the values that were refused.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from pillarbox.errors import (
    InvalidConfig,
    InvalidHeader,
    InvalidKey,
    InvalidTime,
    InvalidTopic,
    PayloadTooLarge,
)


@dataclass(frozen=True, slots=True)
class NameRule:
    """A pattern that a whole name must match, and the same in words."""

    pattern: re.Pattern[str]
    says: str


@dataclass(frozen=True, slots=True, eq=False)
class BusRules:
    """The limits of one bus; sizes are bytes of UTF-8, and a message includes its headers.

    Compared by identity, so that checked names can be remembered at little cost.
    """

    name: str
    schemes: tuple[str, ...]
    topic: tuple[NameRule, ...]
    message_max_bytes: int
    topic_max_bytes: int = 249  # Kafka's limit is the width of the outbox column for every bus.
    routing_key_max_bytes: int = 255
    header_name_max_bytes: int = 128  # RabbitMQ's client cuts longer names without a word.
    headers_max_count: int = 64
    headers_max_bytes: int = 8_192


_ANY_TOPIC: Final = NameRule(
    re.compile(r"(?!\.{1,2}\Z)[^\s*>#]+"),
    "must be a name without spaces and wildcards (* > #), other than . and ..",
)
_KAFKA_TOPIC: Final = NameRule(
    re.compile(r"[a-zA-Z0-9._-]+"), "may hold ASCII letters, digits, dot, _ and - only"
)
_NATS_TOPIC: Final = NameRule(
    re.compile(r"(?!\$)[!-\-/-~]+(?:\.[!-\-/-~]+)*"),
    "must be ASCII words joined by single dots, and must not start with $",
)
_RABBITMQ_TOPIC: Final = NameRule(re.compile(r"(?!amq\.).+"), "must not start with amq.")
_PULSAR_TOPIC: Final = NameRule(
    re.compile(
        r"(?!.*-partition-[0-9]+\Z)(?:(?:persistent://)?[\w=:.-]+/[\w=:.-]+/)?[\w=:.-]+", re.ASCII
    ),
    "must be name, tenant/namespace/name or persistent://tenant/namespace/name of ASCII letters, "
    "digits, _ = : . and -, and must not end like a partition",
)

KAFKA: Final = BusRules(
    "kafka",
    ("kafka",),
    (_ANY_TOPIC, _KAFKA_TOPIC),
    # The broker's default of 1,048,588 counts the batch's framing too.
    message_max_bytes=1_000_000,
)
NATS: Final = BusRules("nats", ("nats", "tls"), (_ANY_TOPIC, _NATS_TOPIC), 1_048_576)
RABBITMQ: Final = BusRules(
    "rabbitmq", ("amqp", "amqps", "rabbitmq"), (_ANY_TOPIC, _RABBITMQ_TOPIC), 16_777_216
)
PULSAR: Final = BusRules("pulsar", ("pulsar",), (_ANY_TOPIC, _PULSAR_TOPIC), 5_242_880)
# Redis takes 512 MB, but a stream entry lives in memory; 16 MiB is our choice.
REDIS: Final = BusRules("redis", ("redis", "rediss"), (_ANY_TOPIC,), 16_777_216)
MEMORY: Final = BusRules("memory", ("memory",), (_ANY_TOPIC,), 16_777_216)


def strictest(*rules: BusRules) -> BusRules:
    """Combine rules so that what passes is accepted by each of the buses."""
    return BusRules(
        "+".join(rule.name for rule in rules),
        (),
        tuple(dict.fromkeys(part for rule in rules for part in rule.topic)),
        message_max_bytes=min(rule.message_max_bytes for rule in rules),
        topic_max_bytes=min(rule.topic_max_bytes for rule in rules),
        routing_key_max_bytes=min(rule.routing_key_max_bytes for rule in rules),
        header_name_max_bytes=min(rule.header_name_max_bytes for rule in rules),
        headers_max_count=min(rule.headers_max_count for rule in rules),
        headers_max_bytes=min(rule.headers_max_bytes for rule in rules),
    )


PORTABLE: Final = strictest(KAFKA, NATS, RABBITMQ, PULSAR, REDIS)
_BUSES: Final = (KAFKA, NATS, RABBITMQ, PULSAR, REDIS, MEMORY)
_BY_SCHEME: Final[Mapping[str, BusRules]] = MappingProxyType(
    {scheme: rules for rules in _BUSES for scheme in rules.schemes}
)


def rules_for(bus: str | None) -> BusRules:
    """Return the rules of a bus by its name or URL; without one, what every broker takes."""
    if bus is None:
        return PORTABLE
    scheme = bus.partition("://")[0].partition("+")[0].lower()
    if scheme not in _BY_SCHEME:
        # The text is not repeated, since a URL may hold a password.
        known = ", ".join(f"{name}://" for name in _BY_SCHEME)
        raise InvalidConfig("bus", "names no bus that Pillarbox knows", f"use one of {known}")
    return _BY_SCHEME[scheme]


RESERVED_HEADERS: Final = frozenset(
    {
        "content-type",
        "event_id",
        "event_type",
        "tenant_id",
        "aggregate_id",
        "aggregate_type",
        "aggregate_version",
        "event_number",
        "schema_version",
        "schema_id",
        "traceparent",
        "tracestate",
        "correlationid",
        "causationid",
        "cc",  # RabbitMQ routes a copy to whatever these two name.
        "bcc",
    }
)
RESERVED_HEADER_PREFIXES: Final = ("nats-", "__", "ce_", "ce-", "cloudevents", "x-death")
NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_UNSAFE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_TENANT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_IDENTIFIER: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_FIRST_YEAR: Final = 1970
_LAST_YEAR: Final = 9998


def check_topic(topic: str, rules: BusRules = PORTABLE) -> str:
    """Return a topic that the bus takes, or raise `InvalidTopic`."""
    name = _plain_text(topic)
    if name is None:
        raise InvalidTopic("topic", f"has the type {_type_name(topic)}", "pass a str")
    return _checked_topic(name, rules)


@lru_cache(maxsize=1024)
def _checked_topic(name: str, rules: BusRules) -> str:
    if not name:
        raise InvalidTopic("topic", "is empty", "name the topic the event goes to")
    if not name.isprintable():
        raise InvalidTopic("topic", "holds a character that does not print", "remove it")
    if (size := len(name.encode())) > rules.topic_max_bytes:
        raise InvalidTopic(
            "topic",
            f"has {size} bytes > {rules.topic_max_bytes} for {rules.name}",
            "choose a shorter name",
        )
    for rule in rules.topic:
        if rule.pattern.fullmatch(name) is None:
            raise InvalidTopic("topic", f"is refused by {rules.name}", f"a topic {rule.says}")
    return name


def check_key(field: str, value: str, max_len: int = 255) -> str:
    """Return a key, id or type name as plain text, or raise `InvalidKey`."""
    text = value if type(value) is str else _plain_text(value)
    if text and len(text) <= max_len and text.isprintable() and text.strip() == text:
        return text
    if text is None:
        raise InvalidKey(field, f"has the type {_type_name(value)}", "pass a str, as in str(value)")
    if not text:
        raise InvalidKey(field, "is empty", "pass None where there is none")
    if len(text) > max_len:
        raise InvalidKey(
            field, f"has {len(text)} characters > {max_len}", "use a shorter value, or its hash"
        )
    # Not all that does not print is unsafe: joined emoji and no-break spaces pass.
    if _UNSAFE.search(text):
        raise InvalidKey(
            field, "holds a control character or a lone surrogate", "remove it before the call"
        )
    if text.strip() != text:
        raise InvalidKey(field, "begins or ends with a space", "strip it before the call")
    return text


def check_routing_key(value: str, rules: BusRules = PORTABLE) -> str:
    """Return a routing key that the bus takes, or raise `InvalidKey`."""
    text = check_key("routing_key", value)
    if not text.isascii() and (size := len(text.encode())) > rules.routing_key_max_bytes:
        raise InvalidKey(
            "routing_key",
            f"has {size} bytes > {rules.routing_key_max_bytes} for {rules.name}",
            "use a shorter value",
        )
    return text


def check_tenant(value: str) -> str:
    """Return a tenant id, or raise `InvalidKey`."""
    text = _plain_text(value)
    if text is not None and _TENANT.fullmatch(text):
        return text
    raise InvalidKey(
        "tenant_id",
        f"of type {_type_name(value)} is no tenant id" if text is None else "is no tenant id",
        "use 1 to 64 ASCII letters, digits, dots, _ and -, with a letter or digit first",
    )


def check_identifier(setting: str, value: str) -> str:
    """Return the name of a schema, table, channel or slot, or raise `InvalidConfig`."""
    text = _plain_text(value)
    if text is not None and _IDENTIFIER.fullmatch(text):
        return text
    raise InvalidConfig(
        setting,
        "is no plain database name",
        "use 1 to 63 lower-case ASCII letters, digits and _, not beginning with a digit",
    )


def check_time(field: str, value: datetime) -> datetime:
    """Return an aware time in UTC, or raise `InvalidTime`."""
    if not isinstance(value, datetime):
        raise InvalidTime(field, f"has the type {_type_name(value)}", "pass a datetime")
    if not isinstance(value.utcoffset(), timedelta):
        raise InvalidTime(field, "has no time zone", "give it one, as in datetime.now(UTC)")
    # Looked at before the conversion too, which overflows at the ends of the calendar.
    if _FIRST_YEAR <= value.year <= _LAST_YEAR:
        moment = value.astimezone(UTC)
        if _FIRST_YEAR <= moment.year <= _LAST_YEAR:
            return moment
    raise InvalidTime(
        field, f"is outside the years {_FIRST_YEAR} to {_LAST_YEAR}", "pass a time within them"
    )


def check_size(payload_bytes: int, header_bytes: int, rules: BusRules = PORTABLE) -> None:
    """Raise `PayloadTooLarge` for a message over the limit of the bus."""
    size = payload_bytes + header_bytes
    if size > rules.message_max_bytes:
        raise PayloadTooLarge(size, rules.message_max_bytes, rules.name)


def header_size(headers: Mapping[str, str]) -> int:
    """Return the bytes that checked headers take, with four for the framing of each."""
    return sum(len(name) + len(value) + 4 for name, value in headers.items())


def check_headers(
    headers: Mapping[str, str] | None,
    rules: BusRules = PORTABLE,
    *,
    own: Mapping[str, str] = NO_HEADERS,
) -> Mapping[str, str]:
    """Return the caller's headers joined with our own, or raise `InvalidHeader`.

    Only `own` may use reserved names. What passes arrives unchanged through every broker.
    """
    if not headers and not own:
        return NO_HEADERS
    if headers is not None and not isinstance(headers, Mapping):
        raise InvalidHeader("headers", f"has the type {_type_name(headers)}", "pass a dict")
    checked: dict[str, str] = {}
    for name, value in (headers or NO_HEADERS).items():
        _check_not_reserved(checked_name := _header_name(name, rules))
        checked[checked_name] = _header_value(checked_name, value)
    for name, value in own.items():
        checked[name] = _header_value(name, value)
    _check_header_totals(checked, rules)
    return checked


def _header_name(name: str, rules: BusRules) -> str:
    text = _plain_text(name)
    if text is None:
        raise InvalidHeader("headers", f"has a name of type {_type_name(name)}", "pass a str")
    if _HEADER_NAME.fullmatch(text) is None:
        raise InvalidHeader(
            "headers",
            "has a name that is empty or holds other characters than ASCII letters, digits, - _ .",
            "rename the header",
        )
    if len(text) > rules.header_name_max_bytes:
        raise InvalidHeader(
            "headers",
            f"has a name of {len(text)} bytes > {rules.header_name_max_bytes}",
            "choose a shorter name",
        )
    return text


def _check_not_reserved(name: str) -> None:
    folded = name.lower()
    if folded in RESERVED_HEADERS or folded.startswith(RESERVED_HEADER_PREFIXES):
        raise InvalidHeader(
            _header_field(name),
            "is a reserved name",
            "rename it, or use the argument of the call that sets it",
        )


def _header_value(name: str, value: str) -> str:
    text = _plain_text(value)
    # For ASCII, printable also means: no CR, LF, NUL or other control character.
    if text is not None and text.isascii() and text.isprintable() and text.strip() == text:
        return text
    if text is None:
        raise InvalidHeader(
            _header_field(name), f"has a value of type {_type_name(value)}", "pass a str"
        )
    if text.isascii() and text.isprintable():
        raise InvalidHeader(
            _header_field(name), "begins or ends with a space", "strip it, since brokers do"
        )
    raise InvalidHeader(
        _header_field(name),
        "holds a control character or a character outside ASCII",
        "percent-encode the value, or put it in the payload",
    )


def _check_header_totals(headers: Mapping[str, str], rules: BusRules) -> None:
    remedy = "put the content in the payload"
    if len(headers) > rules.headers_max_count:
        raise InvalidHeader(
            "headers", f"has {len(headers)} entries > {rules.headers_max_count}", remedy
        )
    size = sum(len(name) + len(value) for name, value in headers.items())
    if size > rules.headers_max_bytes:
        raise InvalidHeader("headers", f"has {size:,} bytes > {rules.headers_max_bytes:,}", remedy)
    if len({name.lower() for name in headers}) < len(headers):
        raise InvalidHeader(
            "headers", "has two names that differ in case only", "keep one, since brokers may"
        )


def _header_field(name: str) -> str:
    return f"headers[{json.dumps(name)}]"


def _plain_text(value: object) -> str | None:
    """Return a str itself, a subclass (a str enum, say) as the plain str it holds, else None."""
    if type(value) is str:
        return value
    return str.__str__(value) if isinstance(value, str) else None


def _type_name(value: object) -> str:
    return type(value).__qualname__
