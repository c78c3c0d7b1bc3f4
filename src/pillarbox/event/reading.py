"""Read inbound messages: CloudEvents of every binding, plain headers, or the broker's own facts.

Nothing here raises for bad input: what cannot be read is answered with a code and a reason. No
content is decompressed, and names in it are compared with known ones, never imported.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple

from pillarbox.errors import InvalidEvent
from pillarbox.event.attributes import (
    CONTENT_ENCODING,
    MAX_HEADER_BYTES,
    MAX_HEADERS,
    Flawed,
    Parted,
    checked_id,
    checked_text,
    checked_whole,
    parted,
    producer_headers,
)
from pillarbox.event.cloudevents import CONTENT_TYPE
from pillarbox.event.content import Content, content_of, is_cloudevent, whole_event
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.event.incoming import (
    DEFAULT_RULES,
    Identify,
    Incoming,
    ReadingRules,
    Unreadable,
)
from pillarbox.event.rules import check_tenant, check_time

DEFAULT_TENANT: Final = "default"
_SPECVERSION: Final = re.compile(r"1\.[0-9]+", re.ASCII)
# Only in this form is it an aggregate's version and an event's number: others count otherwise.
_SEQUENCE: Final = re.compile(r"([0-9]{19})(?:\.([0-9]{6,9}))?", re.ASCII)
_PLAIN_BODIES: Final = frozenset({"", "identity"})


class _Said(NamedTuple):
    """What a message says of itself, in attributes and in plain headers; and the other headers."""

    attributes: Mapping[str, str]
    plain: Mapping[str, str]
    headers: Parted


def read(
    message: Incoming, identify: Identify | None = None, rules: ReadingRules = DEFAULT_RULES
) -> MessageEnvelope | Unreadable:
    """Return a message as an envelope with payload and data, or why it cannot be one."""
    try:
        _check_bounds(message, rules)
        said, content = _parts(message, rules)
        return _envelope(message, said, content, identify, rules)
    except Flawed as flawed:
        return flawed.answer


def _check_bounds(message: Incoming, rules: ReadingRules) -> None:
    if message.body is not None and len(message.body) > rules.max_bytes:
        raise Flawed("too-large", f"the body has {len(message.body):,} bytes > {rules.max_bytes:,}")
    if len(message.headers) > MAX_HEADERS:
        raise Flawed("too-large", f"there are {len(message.headers)} headers > {MAX_HEADERS}")
    size = sum(map(len, message.headers)) + sum(map(len, message.headers.values()))
    if size > MAX_HEADER_BYTES:
        raise Flawed("too-large", f"the headers have {size:,} characters > {MAX_HEADER_BYTES:,}")


def _parts(message: Incoming, rules: ReadingRules) -> tuple[_Said, Content]:
    headers = parted(message.headers)
    plain, attributes = headers.plain, headers.attributes
    if plain.get(CONTENT_ENCODING, "").strip().lower() not in _PLAIN_BODIES:
        raise Flawed("wrong-encoding", "the body is compressed, and nothing here decompresses it")
    kind = message.content_type or plain.get(CONTENT_TYPE)
    if kind is not None and is_cloudevent(kind):
        attributes, content = whole_event(message.body, kind, rules)
        return _Said(attributes, plain, headers), content
    kind = kind or attributes.get("datacontenttype")
    return _Said(attributes, plain, headers), content_of(message.body, kind, rules)


def _envelope(
    message: Incoming,
    said: _Said,
    content: Content,
    identify: Identify | None,
    rules: ReadingRules,
) -> MessageEnvelope:
    attributes, plain, headers = said
    version = attributes.get("specversion")
    if version is not None and _SPECVERSION.fullmatch(version) is None:
        raise Flawed("invalid-attribute", "specversion is another than 1.0")
    aggregate_version, event_number = _aggregate_place(said)
    kind = attributes.get("type") or plain.get("event_type") or message.topic
    aggregate = plain.get("aggregate_id") or attributes.get("subject")
    schema = plain.get("schema_id") or attributes.get("dataschema")
    key = message.key or attributes.get("partitionkey")
    return MessageEnvelope(
        event_id=_event_id(message, said, identify),
        event_type=checked_text("type", kind) or "",
        payload=content.payload,
        data=content.data,
        content_type=content.content_type,
        topic=message.topic,
        key=checked_text("key", key, "invalid-key"),
        tenant_id=_tenant(message, said, rules),
        source=checked_text("source", attributes.get("source")),
        occurred_at=_time(attributes.get("time")),
        aggregate_type=checked_text("aggregate_type", plain.get("aggregate_type")),
        aggregate_id=checked_text("subject", aggregate),
        aggregate_version=aggregate_version,
        event_number=event_number,
        schema_id=checked_text("schema", schema),
        schema_version=checked_whole("schema_version", plain.get("schema_version"), 1) or 1,
        headers=producer_headers(headers, attributes),
    )


def _event_id(message: Incoming, said: _Said, identify: Identify | None) -> str:
    named = said.attributes.get("id", said.plain.get("event_id"))
    if named is not None:
        return checked_id(named)
    if identify is None:
        made = message.message_id
    else:
        try:
            made = identify(message) or message.message_id
        except Exception as error:  # noqa: BLE001 - foreign code, and the loop must not die of it
            raise Flawed("no-id", f"identify raised {type(error).__qualname__}") from None
        if not isinstance(made, str | None):
            raise Flawed("invalid-id", f"identify returned {type(made).__qualname__}, not a text")
    if not made:
        raise Flawed("no-id", "the message has no id, neither its producer's nor its broker's")
    return checked_id(made)


def _tenant(message: Incoming, said: _Said, rules: ReadingRules) -> str:
    """Return the tenant that a message names, if nothing speaks against it."""
    named = {said.attributes.get("tenantid"), said.plain.get("tenant_id")} - {None, ""}
    if len(named) > 1:
        raise Flawed("tenant-forged", "the attribute tenantid and the header tenant_id differ")
    tenant = next(iter(named), None)
    if rules.proven_tenant is not None:
        tenant = _proven(message, tenant, rules)
    if tenant is None:
        if rules.tenant_required:
            raise Flawed("tenant-required", "the message names no tenant")
        return DEFAULT_TENANT
    try:
        return check_tenant(tenant)
    except InvalidEvent:
        raise Flawed("invalid-tenant", "the message names what is no tenant id") from None


def _proven(message: Incoming, named: str | None, rules: ReadingRules) -> str:
    try:
        proven = None if rules.proven_tenant is None else rules.proven_tenant(message)
    except Exception as error:  # noqa: BLE001 - foreign code, and the loop must not die of it
        raise Flawed("tenant-forged", f"its proof raised {type(error).__qualname__}") from None
    if proven is None:
        raise Flawed("tenant-forged", "nothing proves the message's tenant")
    if named is not None and named != proven:
        raise Flawed("tenant-forged", "the message names another tenant than its way proves")
    return proven


def _aggregate_place(said: _Said) -> tuple[int | None, int | None]:
    version = checked_whole("aggregate_version", said.plain.get("aggregate_version"))
    number = checked_whole("event_number", said.plain.get("event_number"))
    found = _SEQUENCE.fullmatch(said.attributes.get("sequence", ""))
    if version is None and found is not None:
        return checked_whole("sequence", found[1]), checked_whole("sequence", found[2])
    return version, number


def _time(text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        return check_time("time", datetime.fromisoformat(text.upper()))
    except ValueError:
        raise Flawed("invalid-attribute", "time is no RFC 3339 time of the years in use") from None
