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


def nats_headers(row: Any) -> dict[str, str]:
    """Return the headers of a row whose text is text; no value here needs to be encoded."""
    event_id, kind, tenant, aggregate, version = (
        row[ID],
        row[TYPE],
        row[TENANT],
        row[AGGREGATE],
        row[VERSION],
    )
    trace = orjson.loads(row[METADATA])["traceparent"]
    return {
        "Nats-Msg-Id": f"{tenant}:{event_id}",
        "ce-specversion": "1.0",
        "ce-id": event_id,
        "ce-type": kind,
        "ce-source": SOURCE,
        "ce-tenantid": tenant,
        "event_id": event_id,
        "event_type": kind,
        "tenant_id": tenant,
        "schema_version": row[SCHEMA],
        "ce-datacontenttype": row[CONTENT],
        "ce-time": row[TIME].isoformat(),
        "ce-partitionkey": row[KEY],
        "ce-subject": aggregate,
        "aggregate_id": aggregate,
        "aggregate_type": row[AGGREGATE_TYPE],
        "ce-sequence": f"{version:019d}.{row[NUMBER]:06d}",
        "aggregate_version": str(version),
        "event_number": str(row[NUMBER]),
        "traceparent": trace,
        "ce-traceparent": trace,
    }
