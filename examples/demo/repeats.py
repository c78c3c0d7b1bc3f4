"""Send messages that were delivered once more, exactly as they are, as brokers and networks do."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any, Final

import nats
import psycopg
from psycopg.rows import dict_row

from examples.shop.common.bus import bus_at
from pillarbox import MessageEnvelope

_DELIVERED: Final = """
    SELECT id::text AS event_id, event_type, payload::text AS payload, content_type, topic, key,
        tenant_id, occurred_at, aggregate_type, aggregate_id, aggregate_version, event_number,
        schema_id, schema_version, routing_key, event_metadata::text AS headers
    FROM outbox WHERE status = 'SENT' ORDER BY seq DESC LIMIT %s"""
_COUNT: Final = "SELECT count(*) FROM outbox WHERE status = 'SENT'"
_WAIT_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.1
# By this header JetStream would remove the copy itself, and the inbox would have nothing to do.
_MARK: Final = "Nats-Msg-Id"


async def repeat_messages(bus: str, database: str, service: str, count: int) -> int:
    """Publish the latest delivered events of a service again; return how many were taken."""
    if bus.startswith(("nats://", "tls://")):
        return await _copy_in_nats(bus, f"{service}.order", count)
    with psycopg.connect(database, row_factory=dict_row) as connection:
        rows = connection.execute(_DELIVERED, [count]).fetchall()
    return await _publish(bus, service, rows)


async def until_delivered(database: str, count: int) -> None:
    """Wait until so many events of a service are delivered: there is nothing to repeat before."""
    async with asyncio.timeout(_WAIT_SECONDS):
        while await asyncio.to_thread(delivered, database) < count:  # noqa: ASYNC110 - a server
            await asyncio.sleep(_LOOK_SECONDS)


def delivered(database: str) -> int:
    """Count the events of a service that the broker has."""
    with psycopg.connect(database) as connection:
        [(found,)] = connection.execute(_COUNT).fetchall()
    return int(found)


async def _copy_in_nats(bus: str, topic: str, count: int) -> int:
    client = await nats.connect(bus)
    try:
        stream = client.jetstream()
        name = await client.jsm().find_stream_name_by_subject(topic)
        last = (await client.jsm().stream_info(name)).state.last_seq
        copied = 0
        for number in range(last, max(last - count, 0), -1):
            message = await stream.get_msg(name, number)
            headers = {
                name: value for name, value in (message.headers or {}).items() if name != _MARK
            }
            await stream.publish(str(message.subject), message.data or b"", headers=headers)
            copied += 1
        return copied
    finally:
        await client.close()


async def _publish(bus: str, service: str, rows: Sequence[dict[str, Any]]) -> int:
    target = bus_at(bus)
    try:
        outcomes = await target.publish([_envelope(service, row) for row in rows])
        return len(outcomes)
    finally:
        await target.close()


def _envelope(service: str, row: dict[str, Any]) -> MessageEnvelope:
    payload, headers = row.pop("payload"), json.loads(row.pop("headers"))
    return MessageEnvelope(**row, data=payload.encode(), headers=headers, source=service)
