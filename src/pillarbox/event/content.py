"""The content of an inbound message: bytes with a type, or one CloudEvent as a JSON object."""

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from pillarbox.errors import InvalidEvent, PayloadTooDeep
from pillarbox.event.attributes import Flawed
from pillarbox.event.cloudevents import STRUCTURED_CONTENT, is_json
from pillarbox.event.encoders import MAX_DEPTH
from pillarbox.event.envelope import JSON_CONTENT
from pillarbox.event.incoming import ReadingRules
from pillarbox.event.payload import decode_json, encode_json

_STRUCTURED: Final = STRUCTURED_CONTENT.partition(";")[0]
_CLOUDEVENTS: Final = "application/cloudevents"
_CHARSET: Final = re.compile(r";\s*charset\s*=\s*\"?([^\s\";]+)", re.IGNORECASE)
_UTF8: Final = frozenset({"utf-8", "utf8", "us-ascii", "ascii"})
_MAX_TYPE: Final = 255


class Content(NamedTuple):
    """A payload with the bytes that it was read from and their type."""

    payload: Any
    data: bytes | None
    content_type: str


NO_CONTENT: Final = Content(None, None, JSON_CONTENT)


def is_cloudevent(content_type: str | None) -> bool:
    """Tell whether a body is a whole event; raise for a form of one that nobody here reads."""
    media_type = (content_type or "").partition(";")[0].strip().lower()
    if not media_type.startswith(_CLOUDEVENTS):
        return False
    if media_type != _STRUCTURED:
        raise Flawed("wrong-content-type", f"of CloudEvents only {_STRUCTURED} is read")
    return True


def content_of(body: bytes | None, content_type: str | None, rules: ReadingRules) -> Content:
    """Read a body by its type; without a type it must be JSON, and an empty one is a tombstone."""
    if body is None or not (body or content_type):
        return NO_CONTENT
    kind = content_type or JSON_CONTENT
    if len(kind) > _MAX_TYPE:
        raise Flawed("wrong-content-type", f"the content type has more than {_MAX_TYPE} characters")
    if not is_json(kind):
        return Content(body, body, kind)
    return Content(_decoded(body, kind, rules), body, kind)


def whole_event(
    body: bytes | None, content_type: str, rules: ReadingRules
) -> tuple[dict[str, str], Content]:
    """Read an event that is one JSON object: its attributes and its content."""
    # The object around the data is one level that its producer did not count.
    limits = replace(rules.limits, depth=min(rules.limits.depth + 1, MAX_DEPTH))
    event = _decoded(body or b"", content_type, replace(rules, limits=limits))
    if not isinstance(event, dict):
        raise Flawed("undecodable", "a structured CloudEvent must be a JSON object")
    attributes = {
        name: _as_text(name, value)
        for name, value in event.items()
        if name not in ("data", "data_base64") and value is not None
    }
    return attributes, _content_in(event, attributes.get("datacontenttype"), rules)


def _content_in(event: Mapping[str, Any], kind: str | None, rules: ReadingRules) -> Content:
    value, packed = event.get("data"), event.get("data_base64")
    if value is not None and packed is not None:
        raise Flawed("invalid-attribute", "data and data_base64 are both there")
    if packed is not None:
        return content_of(_unpacked(packed), kind, rules)
    if value is None:
        return NO_CONTENT if kind is None else NO_CONTENT._replace(content_type=kind)
    if kind is None or is_json(kind):
        return Content(value, _as_bytes(value, rules), kind or JSON_CONTENT)
    data = value.encode() if isinstance(value, str) else _as_bytes(value, rules)
    return Content(data, data, kind)


def _decoded(body: bytes, content_type: str, rules: ReadingRules) -> Any:
    charset = _CHARSET.search(content_type)
    if charset is not None and charset[1].lower() not in _UTF8:
        raise Flawed("wrong-encoding", "JSON is read as UTF-8, and the content type says another")
    try:
        return decode_json(body.decode(), limits=rules.limits, strict=rules.strict)
    except UnicodeDecodeError:
        raise Flawed("wrong-encoding", "the body is not UTF-8") from None
    except PayloadTooDeep as error:
        raise Flawed("too-deep", str(error)) from None
    except InvalidEvent as error:
        raise Flawed("undecodable", str(error)) from None


def _as_bytes(value: object, rules: ReadingRules) -> bytes:
    try:
        return encode_json(value, limits=rules.limits).encode()
    except InvalidEvent as error:
        raise Flawed("too-deep", str(error)) from None


def _unpacked(packed: object) -> bytes:
    try:
        return base64.b64decode(packed if isinstance(packed, str) else "=", validate=True)
    except (binascii.Error, ValueError):
        raise Flawed("undecodable", "data_base64 is no base64 text") from None


def _as_text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int):
        return str(value)
    raise Flawed("invalid-attribute", f"{name} is neither text nor a whole number")
