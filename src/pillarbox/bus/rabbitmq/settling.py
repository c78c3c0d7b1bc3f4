"""New queues of RabbitMQ, until they would outlive a crash."""

import asyncio
from collections.abc import Iterable
from typing import Final

# RabbitMQ 3.10 writes the name of a new quorum queue to disk a second later. Killed before that, it
# loses the queue with all that it has confirmed.
SETTLE_SECONDS: Final = 1.2


class Settling:
    """Remember which topics have queues so new that nothing may be sent to them yet."""

    def __init__(self, seconds: float = SETTLE_SECONDS) -> None:
        self._seconds = seconds
        self._topics: set[str] = set()
        self._over = 0.0

    def begin(self, topics: Iterable[str]) -> None:
        """Take note of topics whose queues were made now."""
        # One moment for all: the broker writes them once no further ones come.
        self._over = asyncio.get_running_loop().time() + self._seconds
        self._topics.update(topics)

    async def end(self, topics: Iterable[str | None]) -> None:
        """Wait until the queues of these topics are on disk; the caller sets the limit."""
        now = asyncio.get_running_loop().time
        while self._over > now() and not self._topics.isdisjoint(topics):  # noqa: ASYNC110 - no event: the broker says nothing
            await asyncio.sleep(self._over - now())
        if self._over <= now():
            self._topics.clear()
