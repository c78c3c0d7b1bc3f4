"""Tell a listener how a consumer stands, again and again."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from pillarbox.bus.subscription import outlook
from pillarbox.consumer.lane_runner import Surroundings
from pillarbox.consumer.standing import Hear, Standing

# How soon it is noticed that messages came after the end was told, or that none is left in hand.
_SOON: Final = 0.5


@dataclass(frozen=True, slots=True)
class Listener:
    """Who wants to hear how a consumer stands, and how often at least."""

    hear: Hear
    every: timedelta


class Telling:
    """Ask the broker now and then, and tell; `here` says how this member stands."""

    def __init__(
        self, around: Surroundings, here: Callable[[], Standing], listener: Listener | None
    ) -> None:
        self._around, self._here, self._listener = around, here, listener

    async def for_ever(self) -> None:
        """Tell until the consumer is stopped."""
        stopping = self._around.stopping
        while self._listener is not None and not stopping.is_set():
            told = await self.tell()
            every = self._listener.every.total_seconds()
            until, soon = self._around.now() + every, min(every, _SOON)
            while not stopping.is_set() and self._around.now() < until:
                with suppress(TimeoutError):
                    async with asyncio.timeout(soon):
                        await stopping.wait()
                if bool(told.in_hand) != bool(self._here().in_hand):
                    break

    async def tell(self) -> Standing:
        """Tell once how the consumer stands now."""
        if self._listener is None:
            return Standing()
        # First what is in hand: what leaves the broker meanwhile must not be missing in both.
        began, here = self._around.now(), self._here()
        standing = here.seen_from(await outlook(self._around.subscription))
        await self._listener.hear(standing, timedelta(seconds=self._around.now() - began))
        return standing
