"""Accepted means: read back identical, on both kinds of database."""

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, text

from pillarbox import JsonText, SyncSqlAlchemyOutbox
from pillarbox.errors import InvalidEvent
from pillarbox.event.payload import encode_json
from tests.support.database import Database, on_sync

pytestmark = on_sync
examples = settings(
    max_examples=150,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(width=64)
    | st.text(max_size=40)
    | st.sampled_from(["\x00", "\ud800", "💡", "\\u0000", "'\"\\", "\u2028", "%s :name {} ;--"])
)
payloads = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
keys = st.text(min_size=1, max_size=30)


@pytest.fixture
def connection(database: Database) -> Iterator[Connection]:
    with database.sync_engine() as engine, engine.connect() as connection:
        yield connection


def recorded(connection: Connection, **options: Any) -> tuple[str | None, bytes | None, str]:
    """Record one event and read it back raw, as the projector would, then undo it."""
    try:
        outbox = SyncSqlAlchemyOutbox(connection)
        event_id = outbox.add(topic="round.trip", **options)
        outbox.flush()
        row = connection.execute(
            text(
                "SELECT CAST(payload AS text), payload_bytes, key FROM outbox"
                " WHERE CAST(id AS text) = :id"
            ),
            {"id": str(event_id)},
        ).one()
    finally:
        connection.rollback()
    return row[0], row[1] if row[1] is None else bytes(row[1]), row[2]


@examples
@given(payload=payloads)
@example(payload=0.0)
@example(payload=[1e300, -0.0, "\u2028"])
def test_any_payload_is_refused_or_read_back_as_it_was_encoded(
    connection: Connection, payload: object
) -> None:
    with suppress(InvalidEvent):
        encoded = encode_json(payload)
        stored, _, _ = recorded(connection, payload=payload)

        assert stored == encoded
        assert json.loads(stored) == payload


@examples
@given(payload=payloads, indent=st.sampled_from([None, 1, "\t"]), ascii_only=st.booleans())
@example(payload=0.0, indent=None, ascii_only=True)
def test_any_json_text_is_refused_or_kept_byte_for_byte(
    connection: Connection, payload: object, indent: int | str | None, ascii_only: bool
) -> None:
    written = json.dumps(payload, indent=indent, ensure_ascii=ascii_only)

    with suppress(InvalidEvent):
        stored, _, _ = recorded(connection, payload=JsonText(written))

        assert stored == written


@examples
@given(content=st.binary(max_size=300))
def test_any_bytes_are_kept(connection: Connection, content: bytes) -> None:
    _, stored, _ = recorded(connection, payload=content, content_type="application/avro")

    assert stored == content


@examples
@given(key=keys)
def test_any_key_is_refused_or_kept(connection: Connection, key: str) -> None:
    with suppress(InvalidEvent):
        _, _, stored = recorded(connection, payload={}, key=key)

        assert stored == key
