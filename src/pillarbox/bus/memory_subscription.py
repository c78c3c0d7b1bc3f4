"""A subscription to the memory bus: a member of a group, with faults to order."""

import asyncio
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Final

from pillarbox.bus.memory_group import Group
from pillarbox.bus.subscription import Delivery, Reception, Revoked

SILENCE: Final = 0.1  # nothing is on its way in a process: who drains need not wait for long
_RECEPTION: Final = Reception(
    orders_keys=True, hand_back_limit=None, longest_redelivery=timedelta(0)
)


class MemorySubscription:
    """One member of a consumer's group on the memory bus.

    `lose` takes partitions away as a rebalance does; the bus has `redeliver` and `shuffle`.
    """

    def __init__(
        self, group: Group, reception: Reception | None = None, silence: float = SILENCE
    ) -> None:
        self._group, self._silence = group, silence
        self._reception = reception or _RECEPTION
        self._revoked: Revoked | None = None
        self._woken = asyncio.Event()

    @property
    def reception(self) -> Reception:
        """What this subscription can do."""
        return self._reception

    @property
    def partitions(self) -> list[str]:
        """The partitions that are this member's now."""
        return self._group.owned_by(self)

    async def start(self, revoked: Revoked) -> Sequence[str]:
        """Join the group."""
        self._revoked = revoked
        await self._group.join(self)
        return ()

    async def receive(self, most: int) -> Sequence[Delivery]:
        """Wait for messages, for a moment at most, or as long as was said."""
        try:
            async with asyncio.timeout(self._silence):
                while True:
                    self._woken.clear()
                    if taken := self._group.take(self, most):
                        return taken
                    await self._woken.wait()
        except TimeoutError:
            return ()

    async def acknowledge(self, done: Sequence[Delivery]) -> None:
        """Be done with messages; those of lost partitions are passed over."""
        self._group.finish(self, done)

    async def give_back(self, unfinished: Sequence[Delivery]) -> None:
        """Let messages be delivered again."""
        self._group.put_back(self, unfinished)

    async def lag(self) -> int:
        """Count the messages that nobody has in hand."""
        return self._group.waiting()

    async def close(self) -> None:
        """Leave the group."""
        await self._group.leave(self)

    async def lose(
        self, partitions: Collection[str] | None = None, *, noticed: bool = True
    ) -> None:
        """Give partitions, or all, to the next member; a frozen process does not notice."""
        chosen = self.partitions if partitions is None else partitions
        await self._group.lose(self, chosen, noticed=noticed)

    async def give_up(self, partitions: Collection[str]) -> None:
        """Have the consumer finish with partitions."""
        if self._revoked is not None:
            await self._revoked(partitions)

    def wake(self) -> None:
        """Look again for messages."""
        self._woken.set()
