"""What runs beside an application: workers, wake-ups, the removal of what has expired."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Protocol

from sqlalchemy.ext.asyncio import AsyncEngine

from pillarbox.idempotency.cleanup import Cleanup
from pillarbox.outbox.notify import Notifier


class Worker(Protocol):
    """A projector, a consumer, a read model: it runs until it is told to stop."""

    async def run_forever(self) -> None:
        """Work until `stop`."""
        ...

    def stop(self) -> None:
        """Finish what is in hand and end."""
        ...


@asynccontextmanager
async def run_beside(workers: Sequence[Worker]) -> AsyncIterator[None]:
    """Run workers beside the application; when one fails, the application ends too."""
    if not workers:
        yield
        return
    async with asyncio.TaskGroup() as group:
        for worker in workers:
            group.create_task(worker.run_forever(), name=f"pillarbox-{worker!r}")
        try:
            yield
        finally:
            for worker in workers:
                worker.stop()


@asynccontextmanager
async def told_of_commits(engine: AsyncEngine) -> AsyncIterator[None]:
    """Tell other processes of this one's commits."""
    notifier = asyncio.create_task(Notifier(engine).run(), name="pillarbox-notifier")
    try:
        yield
    finally:
        notifier.cancel()
        with suppress(asyncio.CancelledError):
            await notifier


@asynccontextmanager
async def cleaned_up(cleanups: Sequence[Cleanup]) -> AsyncIterator[None]:
    """Delete expired keys of the idempotent routes while the application runs."""
    cleaners = [asyncio.create_task(found.run()) for found in cleanups]
    try:
        yield
    finally:
        for cleaner in cleaners:
            cleaner.cancel()
        await asyncio.gather(*cleaners, return_exceptions=True)
