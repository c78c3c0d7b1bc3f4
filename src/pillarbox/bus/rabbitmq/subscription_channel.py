"""A channel that takes the messages of one queue."""

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Any, Self

from aiormq import Connection as Client
from aiormq.abc import DeliveredMessage
from aiormq.channel import Channel
from pamqp import commands

from pillarbox.bus.rabbitmq.connection import free_number
from pillarbox.bus.rabbitmq.leaving import leavable

Take = Callable[["QueueChannel", DeliveredMessage], None]


def acknowledgements(waiting: Iterable[int], done: Collection[int]) -> tuple[int | None, list[int]]:
    """Part finished numbers: up to the first, if any, all are finished; the rest go one by one."""
    prefix: int | None = None
    for number in waiting:
        if number not in done:
            break
        prefix = number
    return prefix, sorted(number for number in done if prefix is None or number > prefix)


class QueueChannel(Channel):
    """Consume one queue, and acknowledge what is finished.

    Each queue has a channel of its own: closing it is the one step in which RabbitMQ takes back what
    is unfinished, in its order, and lets the next consumer begin. The client makes a task for each
    message; here a call is enough.
    """

    def __init__(self, client: Client, queue: str, take: Take, ended: Callable[[], None]) -> None:
        super().__init__(client, free_number(client), publisher_confirms=False)
        self.queue = queue
        self._take = take
        self._tell = ended
        self._waiting: dict[int, None] = {}
        self.active = False
        self.leaving = False
        self.ended = False

    @classmethod
    async def opened(
        cls, client: Client, queue: str, prefetch: int, take: Take, ended: Callable[[], None]
    ) -> Self:
        """Open a channel and begin to consume."""
        made = cls(client, queue, take, ended)
        client.channels[made.number] = made
        try:
            await leavable(made._begin(prefetch))
        except BaseException:
            made.leaving = True  # What it was asked for may still happen: nobody takes it.
            raise
        return made

    @property
    def stands(self) -> bool:
        """Whether messages come, and acknowledgements arrive."""
        return not (self.ended or self.is_closed)

    def holds(self, number: int) -> bool:
        """Tell whether a message is in our hands, and stays there."""
        return self.stands and not self.leaving and number in self._waiting

    async def ready(self) -> int:
        """Return how many messages the queue holds that nobody has.

        Asked twice: what was on its way to us at the first answer has come before the second.
        """
        await self._looked_at(self.queue)
        return (await self._looked_at(self.queue)).message_count or 0

    async def consumers_of(self, queue: str) -> int:
        """Return how many consume a queue, this or another."""
        return (await self._looked_at(queue)).consumer_count or 0

    async def acknowledge(self, done: Collection[int]) -> None:
        """Tell the broker which messages are finished, with few words."""
        ours = {number for number in done if number in self._waiting}
        prefix, others = acknowledgements(self._waiting, ours)
        for number in ours:
            del self._waiting[number]
        if prefix is not None:
            await self.basic_ack(prefix, multiple=True, wait=False)
        for number in others:
            await self.basic_ack(number, wait=False)

    async def _begin(self, prefetch: int) -> None:
        await self.open()
        await self.basic_qos(prefetch_count=prefetch)
        await self.basic_consume(self.queue, _unused)

    async def _looked_at(self, queue: str) -> commands.Queue.DeclareOk:
        # A caller that leaves would take the channel along.
        return await asyncio.shield(self.queue_declare(queue, passive=True))

    async def _on_deliver_frame(self, frame: commands.Basic.Deliver) -> None:
        header: Any = await self._get_frame()
        message = await self._read_content(frame, header)
        self.active = True
        self._waiting[frame.delivery_tag or 0] = None
        if not self.leaving:
            self._take(self, message)

    async def _on_cancel_frame(
        self, frame: commands.Basic.Cancel | commands.Basic.CancelOk
    ) -> None:
        await super()._on_cancel_frame(frame)
        self._end()

    async def _on_close_frame(self, frame: commands.Channel.Close) -> None:
        self._end()
        await super()._on_close_frame(frame)

    def _end(self) -> None:
        self.ended = True
        self._tell()


async def _unused(_: DeliveredMessage) -> None:
    """Stand for the callback that the client asks for."""
