"""The headers of a row as the hand-written loops make them: those of our messages, no more."""

from typing import Any, Final

import orjson

from benchmarks.sides.by_hand import (
    AGGREGATE,
    AGGREGATE_TYPE,
    CONTENT,
    ID,
    KEY,
    METADATA,
    NUMBER,
    SCHEMA,
    TENANT,
    TIME,
    TYPE,
    VERSION,
)

SOURCE: Final = "shop"
_NAMES: Final = (
    "ce_specversion",
    "ce_id",
    "ce_type",
    "ce_source",
    "ce_tenantid",
    "event_id",
    "event_type",
    "tenant_id",
    "schema_version",
    "content-type",
    "ce_time",
    "ce_partitionkey",
    "ce_subject",
    "aggregate_id",
    "aggregate_type",
    "ce_sequence",
    "aggregate_version",
    "event_number",
    "traceparent",
    "ce_traceparent",
)
KafkaHeaders = list[tuple[str, str | bytes | None]]


def kafka_headers(row: Any) -> KafkaHeaders:
    """Return the headers of a row whose text is bytes."""
    event_id, kind, tenant, aggregate, version = (
        row[ID],
        row[TYPE],
        row[TENANT],
        row[AGGREGATE],
        row[VERSION],
    )
    trace = orjson.loads(row[METADATA])["traceparent"]
    return [
        ("ce_specversion", b"1.0"),
        ("ce_id", event_id),
        ("ce_type", kind),
        ("ce_source", SOURCE),
        ("ce_tenantid", tenant),
        ("event_id", event_id),
        ("event_type", kind),
        ("tenant_id", tenant),
        ("schema_version", row[SCHEMA]),
        ("content-type", row[CONTENT]),
        ("ce_time", row[TIME].isoformat()),
        ("ce_partitionkey", row[KEY]),
        ("ce_subject", aggregate),
        ("aggregate_id", aggregate),
        ("aggregate_type", row[AGGREGATE_TYPE]),
        ("ce_sequence", b"%019d.%06d" % (version, row[NUMBER])),
        ("aggregate_version", b"%d" % version),
        ("event_number", b"%d" % row[NUMBER]),
        ("traceparent", trace),
        ("ce_traceparent", trace),
    ]


def header_names(prefix: str) -> list[str]:
    """Return the names of `header_values`, with a broker's prefix before each attribute."""
    return [name.replace("ce_", prefix) for name in _NAMES]


def header_values(row: Any) -> list[str]:
    """Return the headers' values of a row whose text is text, in the order of the names."""
    event_id, kind, tenant, aggregate, version, number = (
        row[ID],
        row[TYPE],
        row[TENANT],
        row[AGGREGATE],
        row[VERSION],
        row[NUMBER],
    )
    trace = orjson.loads(row[METADATA])["traceparent"]
    return [
        "1.0",
        event_id,
        kind,
        SOURCE,
        tenant,
        event_id,
        kind,
        tenant,
        row[SCHEMA],
        row[CONTENT],
        row[TIME].isoformat(),
        row[KEY],
        aggregate,
        aggregate,
        row[AGGREGATE_TYPE],
        f"{version:019d}.{number:06d}",
        str(version),
        str(number),
        trace,
        trace,
    ]
