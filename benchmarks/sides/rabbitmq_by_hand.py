"""The reference for RabbitMQ: the overlapped loop, with aiormq's confirms side by side.

Persistent, mandatory, and confirmed without waiting for one another.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import aiormq
from pamqp.commands import Basic

from benchmarks.sides.by_hand import CONTENT, ID, PAYLOAD, TIME, TOPIC, TYPE
from benchmarks.sides.headers import SOURCE, header_names, header_values
from benchmarks.sides.overlapped import Loop, Message, Send, main

_EXCHANGE: Final = "events"
_PERSISTENT: Final = 2
_NAMES: Final = header_names("cloudEvents_")


def _properties(row: Any) -> Basic.Properties:
    headers: dict[str, Any] = dict(zip(_NAMES, header_values(row), strict=True))
    del headers["content-type"]  # It is a property.
    return Basic.Properties(
        content_type=row[CONTENT],
        headers=headers,
        delivery_mode=_PERSISTENT,
        message_id=row[ID],
        timestamp=row[TIME],
        message_type=row[TYPE],
        app_id=SOURCE,
    )


def _answered(loop: Loop, message: Message, publishing: asyncio.Task[Any]) -> None:
    if (error := publishing.exception()) is not None or not isinstance(
        publishing.result(), Basic.Ack
    ):
        loop.refused(error or publishing.result())
    else:
        loop.answered(message)


@asynccontextmanager
async def opening(url: str, loop: Loop) -> AsyncIterator[Send]:
    """Connect and open the channel."""
    async with aiormq.connect(url) as client:
        channel: Any = await client.channel(publisher_confirms=True)
        publishing: set[asyncio.Task[Any]] = set()

        async def send(messages: list[Message]) -> None:
            for message in messages:
                row = message[0]
                task = asyncio.ensure_future(
                    channel.basic_publish(
                        row[PAYLOAD],
                        exchange=_EXCHANGE,
                        routing_key=row[TOPIC],
                        properties=_properties(row),
                        mandatory=True,
                        wait=False,
                    )
                )
                publishing.add(task)
                task.add_done_callback(publishing.discard)
                task.add_done_callback(partial(_answered, loop, message))
            await asyncio.sleep(0)

        yield send


if __name__ == "__main__":
    main(opening)
