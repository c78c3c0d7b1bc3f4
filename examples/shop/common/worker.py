"""Run a projector or a read model in a process of its own."""

import asyncio
import logging
import signal
from typing import Protocol

from pillarbox import Pillarbox


class Worker(Protocol):
    async def run_forever(self) -> None: ...

    def stop(self) -> None: ...


async def publish_outbox_messages(box: Pillarbox) -> None:
    """Move the service's events to the bus until SIGTERM or Ctrl-C."""
    try:
        await run_until_stopped(box, box.projector())
    finally:
        await box.bus.close()


async def run_until_stopped(box: Pillarbox, worker: Worker) -> None:
    """Run a worker until SIGTERM or Ctrl-C; what it has in hand is finished."""
    logging.basicConfig(level=logging.WARNING)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, worker.stop)
    try:
        await worker.run_forever()
    finally:
        await box.engine.dispose()
