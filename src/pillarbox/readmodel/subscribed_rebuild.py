"""A read model that follows a subscription is built again, from the broker's log."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

from sqlalchemy import Row, delete, select

from pillarbox.consumer.consumer import Consumer
from pillarbox.consumer.tenants import Tenants
from pillarbox.consumer.transactions import DatabaseAway
from pillarbox.errors import HistoryIncomplete, ReadModelUnknown, RebuildFailed
from pillarbox.readmodel.checkpoint import STILL, Checkpoints, Generation
from pillarbox.readmodel.definition import ReadModel
from pillarbox.readmodel.filling import Filling
from pillarbox.readmodel.forgetting import Forgetting
from pillarbox.readmodel.lag import Members, Told
from pillarbox.readmodel.parts import Parts
from pillarbox.readmodel.progress import Phase, Reporter, unheard
from pillarbox.readmodel.rebuild import replace_rows
from pillarbox.readmodel.subscription import MakeConsumer, Subscriber
from pillarbox.schema.tables import inbox_parked
from pillarbox.schema.types import DatabaseTime

Forgotten = Callable[[], Awaitable[Sequence[str]]]
"""Say where the broker's log of the model's topics does not reach the first event."""

_RENEW: Final = STILL.total_seconds() / 3
_GIVEN_UP: Final = "given-up"
"""The member that tells of a generation whose number is not to be had again."""


class SubscribedRebuild:
    """Build a model again from the broker's log, by a consumer that begins with its oldest message.

    The live consumer goes on meanwhile; it stands still while the new one takes the last messages.
    """

    def __init__(
        self,
        model: ReadModel,
        parts: Parts,
        make: MakeConsumer,
        forgotten: Forgotten,
        *,
        report: Reporter = unheard,
    ) -> None:
        self._model, self._parts, self._make, self._report = model, parts, make, report
        self._forgotten = forgotten
        self._checkpoints = Checkpoints(parts.schema)
        self._forgetting = Forgetting(model.name, parts)

    async def run(self) -> None:
        """Begin or go on, fill, switch, clean up."""
        at = await self.begin()
        following = Subscriber(self._model, self._parts, at.generation, "filling", self._make)
        filling = Filling(at, self._parts, self._report)
        await self._fill(following, filling, "filling")
        try:
            await self._fill(following, filling, "switching")
            while not await self.switch():
                await self._fill(following, filling, "switching")
        except BaseException:
            with suppress(DatabaseAway):
                await self._hold_still(still=False)
            raise
        filling.tell("done")

    async def begin(self) -> Generation:
        """Write the filling generation, unless one is there already; return it."""
        name = self._model.name
        async with self._parts.transactions.begin(None) as session:
            found = await self._checkpoints.find(session, name, "filling")
        if found is None:
            await self._refuse_cut()
        async with self._parts.transactions.begin(None) as session:
            live = await self._checkpoints.alone(session, name)
            found = await self._checkpoints.find(session, name, "filling", lock=True)
            if found is not None:
                return found.following("bus")
            if live is None:
                raise ReadModelUnknown(name)
            await session.execute(delete(self._model.shadow))
            number = await self._checkpoints.next_generation(session, name)
            new = Generation(name=name, generation=number, source="bus", state="filling")
            await self._checkpoints.begin(session, new)
        return new

    async def abandon(self) -> None:
        """Give up a rebuild; the live table is as it was.

        Its consumer keeps its place at the broker, and what it has set aside. The next rebuild has another
        number, and so another consumer: it begins with the first message.
        """
        name = self._model.name
        async with self._parts.transactions.begin(None) as session:
            await self._checkpoints.alone(session, name)
            found = await self._checkpoints.find(session, name, "filling", lock=True)
            if found is None:
                return
            place = name, found.following("bus").generation
            await session.execute(delete(self._model.shadow))
            now = (await session.execute(select(DatabaseTime()))).scalar_one()
            told = Told(told_at=now, good_until=now)
            await Members(self._parts.schema).tell(session, place, _GIVEN_UP, told)
            await self._checkpoints.drop(session, *place)

    async def switch(self) -> bool:
        """Make the filled generation the live one, in one transaction.

        Return False if the live one has not stood still: the new one may be behind it.
        """
        name = self._model.name
        async with self._parts.transactions.begin(None) as session:
            live = await self._checkpoints.alone(session, name)
            new = await self._checkpoints.find(session, name, "filling", lock=True)
            if new is None:
                raise ReadModelUnknown(name)
            if not await self._checkpoints.stands_still(session, name):
                return False
            await replace_rows(session, self._model)
            await session.execute(delete(self._model.shadow))
            await self._checkpoints.switch(session, live, new)
            await self._checkpoints.tidy(session, name)
        await self._forgetting.forget_everything()
        return True

    async def _fill(self, following: Subscriber, filling: Filling, phase: Phase) -> None:
        """Take all that the broker has; refuse a part of it, and what was set aside on the way.

        To be switched, the live generation stands still meanwhile.
        """
        seconds = self._parts.config.fill_timeout
        if phase == "switching":
            await self._hold_still(still=True)
        caught_up = await self._caught_up(following, filling, phase)
        if following.moved.is_set():
            reason = "another rebuild of it was first, or it was given up"
            raise RebuildFailed(
                self._model.name, None, None, reason, "look at what the model is now"
            )
        if not caught_up:
            reason = f"in {seconds:g} s of silence the broker did not say that it has nothing more"
            raise RebuildFailed(self._model.name, None, None, reason)
        aside = await self._set_aside(following.name)
        if aside is not None:
            reason = (
                f"{aside.error_class or aside.reason}: {aside.error_message or 'no message'} and is "
                f"set aside for the consumer {following.name!r}, where it is retried or dropped"
            )
            raise RebuildFailed(self._model.name, aside.message_id, None, reason)

    async def _caught_up(self, following: Subscriber, filling: Filling, phase: Phase) -> bool:
        """Take messages to the end, or until the generation turns out to be another's."""
        patience, still = timedelta(seconds=self._parts.config.fill_timeout), phase == "switching"
        async with following.told(filling.hear) as consumer, filling.by(consumer, phase):
            watching = asyncio.ensure_future(self._watch(following, consumer, still=still))
            try:
                return await filling.to_the_end(consumer, patience)
            finally:
                watching.cancel()
                await asyncio.wait({watching})

    async def _watch(self, following: Subscriber, consumer: Consumer, *, still: bool) -> None:
        while not following.moved.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(_RENEW):
                    await following.moved.wait()
            if still:
                with suppress(DatabaseAway):
                    await self._hold_still(still=True)
        consumer.stop()

    async def _set_aside(self, consumer: str) -> Row[Any] | None:
        """Return the first message that the filling consumer could not apply."""
        transactions = self._parts.transactions
        table = transactions.table(inbox_parked)
        query = select(table).where(table.c.consumer == consumer).order_by(table.c.seq).limit(1)
        for tenant_id in await Tenants(consumer, transactions).to_ask():
            async with transactions.begin(tenant_id) as session:
                found = (await session.execute(query)).one_or_none()
            if found is not None:
                return found
        return None

    async def _refuse_cut(self) -> None:
        """Refuse a broker's log that does not begin with its first message."""
        if self._parts.config.history == "whole" and (gone := await self._forgotten()):
            remedy = "let the model follow the outbox's log"
            raise HistoryIncomplete(self._model.name, "; ".join(gone), remedy)

    async def _hold_still(self, *, still: bool) -> None:
        """Have the live generation stand still, or go on."""
        async with self._parts.transactions.begin(None) as session:
            await self._checkpoints.hold_still(session, self._model.name, still=still)
