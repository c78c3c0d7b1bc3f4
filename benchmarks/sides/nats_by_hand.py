"""The reference for NATS: the overlapped loop, with nats-py's pipelined `publish_async`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import nats

from benchmarks.sides.by_hand import BATCH, BATCHES_IN_HAND, ID, PAYLOAD, TENANT, TOPIC
from benchmarks.sides.headers import header_names, header_values
from benchmarks.sides.overlapped import Loop, Message, Send, main

_NAMES: Final = [name.replace("content-type", "ce-datacontenttype") for name in header_names("ce-")]


def _headers(row: Any) -> dict[str, str]:
    headers = dict(zip(_NAMES, header_values(row), strict=True))
    headers["Nats-Msg-Id"] = f"{row[TENANT]}:{row[ID]}"
    return headers


def _answered(loop: Loop, message: Message, answer: asyncio.Future[Any]) -> None:
    if (error := answer.exception()) is not None:
        loop.refused(error)
    else:
        loop.answered(message)


@asynccontextmanager
async def opening(url: str, loop: Loop) -> AsyncIterator[Send]:
    """Connect."""
    client = await nats.connect(url)
    stream = client.jetstream(publish_async_max_pending=BATCH * BATCHES_IN_HAND)

    async def send(messages: list[Message]) -> None:
        for message in messages:
            row = message[0]
            answer = await stream.publish_async(row[TOPIC], row[PAYLOAD], headers=_headers(row))
            answer.add_done_callback(partial(_answered, loop, message))

    yield send
    await client.close()


if __name__ == "__main__":
    main(opening)
