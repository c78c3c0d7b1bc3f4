"""Deliveries that have come and that nobody has received yet."""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any

from pillarbox.bus.subscription import Delivery


class Arrivals:
    """Keep deliveries in the order of their partitions, until somebody takes them.

    What is given back stays here and is delivered once more: no broker has to be asked, so that no
    later message of the key passes it on the way, and no broker counts an attempt. `place` says
    where a delivery stands among all that came.
    """

    def __init__(self, place: Callable[[Delivery], Any]) -> None:
        self._place = place
        self._waiting: deque[Delivery] = deque()
        self._news = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, came: Iterable[Delivery]) -> None:
        """Append what has come, in its order."""
        self._waiting.extend(came)
        if self._waiting:
            self._news.set()

    def put_back(self, unfinished: Iterable[Delivery]) -> None:
        """Have these delivered again, each before the later ones of its partition."""
        again = (delivery._replace(redelivered=True) for delivery in unfinished)
        self._waiting = deque(sorted((*self._waiting, *again), key=self._place))
        self.put(())

    def drop(self, partitions: Collection[str]) -> None:
        """Forget what waits of these partitions."""
        left = [found for found in self._waiting if found.partition not in partitions]
        self._waiting = deque(left)

    async def take(self, most: int, seconds: float) -> list[Delivery]:
        """Wait so long for deliveries; a cancelled call takes none."""
        if not self._waiting:
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._news.wait()
        return [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
