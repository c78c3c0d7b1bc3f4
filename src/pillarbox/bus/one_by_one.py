"""Send messages one after the other, so that a refusal hits only the message that deserves it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from pillarbox.bus.handover import HELD_BACK
from pillarbox.bus.outcome import Accepted, PublishOutcome
from pillarbox.event.envelope import MessageEnvelope

Publish = Callable[[MessageEnvelope], Awaitable[PublishOutcome]]


async def publish_one_by_one(
    batch: Sequence[MessageEnvelope], deadline: float, publish: Publish
) -> list[PublishOutcome]:
    """Publish each message by itself; a key goes no further than its first that is not accepted."""
    now = asyncio.get_running_loop().time
    outcomes: list[PublishOutcome] = []
    stopped: set[tuple[str | None, str]] = set()
    for message in batch:
        lane = None if message.key is None else (message.topic, message.key)
        if lane in stopped or now() >= deadline:
            outcomes.append(HELD_BACK)
            continue
        outcomes.append(await publish(message))
        if lane is not None and not isinstance(outcomes[-1], Accepted):
            stopped.add(lane)
    return outcomes
