"""Messages that a stranger may send, each with the code that it gets."""

import json
from typing import Any

from pillarbox.event.cloudevents import STRUCTURED_CONTENT
from pillarbox.event.incoming import Flaw, Incoming


def incoming(**changes: Any) -> Incoming:
    plain = Incoming("shop.order", "k", {"ce_id": "1", "ce_type": "OrderPaid"}, b'{"n":1}')
    return plain._replace(**changes)


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def whole(**attributes: object) -> dict[str, object]:
    event = {"specversion": "1.0", "id": "1", "type": "t", "source": "s", **attributes}
    return {
        "headers": {"content-type": STRUCTURED_CONTENT},
        "body": json.dumps(event).encode(),
    }


def headers(**changes: str) -> dict[str, dict[str, str]]:
    return {"headers": {"ce_id": "1", "ce_type": "OrderPaid", **changes}}


# Every inbound line of the bad-input table, and what else a stranger may send.
BAD: list[tuple[str, Flaw, dict[str, Any]]] = [
    ("no id", "no-id", {"headers": {}}),
    ("an empty id", "no-id", {**headers(ce_id=""), "message_id": "7"}),
    ("an empty plain id", "no-id", {"headers": {"event_id": ""}}),
    ("an id with NUL", "invalid-id", headers(ce_id="a\0b")),
    ("an id with a lone surrogate", "invalid-id", headers(ce_id="a\ud800")),
    ("not JSON", "undecodable", {"body": b"{"}),
    ("an empty JSON body", "undecodable", {"body": b"", "content_type": "application/json"}),
    ("a duplicate key", "undecodable", {"body": b'{"a":1,"a":2}'}),
    ("a deep duplicate key", "undecodable", {"body": b'{"a":[{"b":1,"b":1}]}'}),
    ("NaN", "undecodable", {"body": b'{"a":NaN}'}),
    ("a number that is infinite", "undecodable", {"body": b'{"a":1e999}'}),
    ("a number with an enormous exponent", "undecodable", {"body": b'{"a":1e131071}'}),
    ("an integer beyond 64 bits", "undecodable", {"body": b'{"a":18446744073709551616}'}),
    ("an integer of 5,000 digits", "undecodable", {"body": b'{"a":' + b"9" * 5000 + b"}"}),
    ("a lone surrogate", "undecodable", {"body": b'{"a":"\\ud800"}'}),
    ("a NUL character", "undecodable", {"body": b'{"a":"\\u0000"}'}),
    ("bytes after the JSON", "undecodable", {"body": b"{} {}"}),
    ("a byte order mark", "undecodable", {"body": b"\xef\xbb\xbf{}"}),
    ("a pickle", "wrong-encoding", {"body": b"\x80\x04\x95\x0b\x00"}),
    ("65 levels", "too-deep", {"body": nested(65)}),
    ("100,000 levels", "too-deep", {"body": nested(100_000)}),
    ("Latin-1", "wrong-encoding", {"body": '{"a":"ü"}'.encode("latin-1")}),
    ("UTF-16", "wrong-encoding", {"body": '{"a":1}'.encode("utf-16")}),
    (
        "another charset",
        "wrong-encoding",
        {"content_type": 'application/json; charset="iso-8859-1"'},
    ),
    ("a compressed body", "wrong-encoding", headers(**{"Content-Encoding": "gzip"})),
    ("a body of 16 MiB and 1", "too-large", {"body": b"x" * 16_777_217, "content_type": "a/b"}),
    ("257 headers", "too-large", {"headers": {f"h{n}": "" for n in range(257)}}),
    ("headers of 64 KiB", "too-large", headers(big="x" * 65_536)),
    (
        "CloudEvents in a batch",
        "wrong-content-type",
        {"content_type": "application/cloudevents-batch+json"},
    ),
    ("CloudEvents in XML", "wrong-content-type", {"content_type": "application/cloudevents+xml"}),
    ("an endless content type", "wrong-content-type", {"content_type": "a/" + "b" * 300}),
    ("a structured event that is a list", "undecodable", {**whole(), "body": b"[]"}),
    ("a structured event without an id", "no-id", {**whole(id=None)}),
    ("a structured event with an object for an id", "invalid-attribute", whole(id={"a": 1})),
    ("data in both forms", "invalid-attribute", whole(data={}, data_base64="AA==")),
    ("data in bad base64", "undecodable", whole(data_base64="A")),
    ("data in base64 that is a number", "undecodable", whole(data_base64=7)),
    (
        "bad JSON in base64",
        "undecodable",
        whole(data_base64="ew==", datacontenttype="application/json"),
    ),
    ("an old specversion", "invalid-attribute", headers(ce_specversion="0.3")),
    ("a time that is none", "invalid-attribute", headers(ce_time="yesterday")),
    ("a time without a zone", "invalid-attribute", headers(ce_time="2026-01-02T03:04:05")),
    ("a time before 1970", "invalid-attribute", headers(ce_time="0001-01-01T00:00:00Z")),
    ("a type of 256 characters", "invalid-attribute", headers(ce_type="x" * 256)),
    ("a source of 256 characters", "invalid-attribute", headers(ce_source="x" * 256)),
    ("a source with a space at its end", "invalid-attribute", headers(ce_source="a ")),
    ("a source with a newline", "invalid-attribute", headers(ce_source="a\nb")),
    ("an id in two forms that differ", "invalid-attribute", headers(**{"ce-id": "2"})),
    ("an attribute in bad percent signs", "invalid-attribute", {"headers": {"ce-id": "%ff"}}),
    ("a version that is no number", "invalid-attribute", headers(aggregate_version="-1")),
    ("a version beyond 64 bits", "invalid-attribute", headers(aggregate_version="9" * 19)),
    ("a schema version of 0", "invalid-attribute", headers(schema_version="0")),
    ("a schema version in Arabic digits", "invalid-attribute", headers(schema_version="٣")),
    ("a key of 256 characters", "invalid-key", {"key": "k" * 256}),
    ("a key with NUL", "invalid-key", {"key": "a\0"}),
    ("a tenant that is none", "invalid-tenant", headers(tenant_id="a'b")),
    ("two tenants", "tenant-forged", headers(ce_tenantid="acme", tenant_id="evil")),
]
