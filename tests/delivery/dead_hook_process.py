"""Drain an outbox to a bus that refuses everything, and perhaps die between hook and commit.

    python -m tests.delivery.dead_hook_process DATABASE FILE [kill]

The hook writes a line with the event's id into the file.
"""

import asyncio
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

from pillarbox import MemoryMessageBus, OutboxProjector, OutboxProjectorConfig
from pillarbox.bus.message_bus import Capabilities
from pillarbox.bus.outcome import Refused
from pillarbox.event.rules import MEMORY
from pillarbox.projector.observer import Observer
from pillarbox.projector.store import Failure, OutboxEvent


class Deadly(Observer):
    """The hook has returned when outcomes are about to be written."""

    def settling(self, events: int) -> None:
        del events
        os.kill(os.getpid(), signal.SIGKILL)


def note(file: Path, line: str) -> None:
    with file.open("a", encoding="utf-8") as told:
        told.write(line)


async def main(database: str, file: str, *how: str) -> None:
    bus = MemoryMessageBus(Capabilities(MEMORY, publish_timeout=timedelta(milliseconds=500)))
    bus.fail_with(lambda _: True, Refused("too-large", "1 MB"))

    async def hook(event: OutboxEvent, failure: Failure) -> None:
        note(Path(file), f"{event.event_id} {failure.code}\n")

    projector = OutboxProjector(
        message_bus=bus,
        dsn=database,
        config=OutboxProjectorConfig(max_retry_attempts=1, lease=1.0),
        dead_hook=hook,
        observer=Deadly() if "kill" in how else None,
    )
    await projector.drain()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
