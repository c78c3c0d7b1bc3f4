"""A member of a subscribed model tells how it stands, for whoever asks the database."""

import asyncio
import secrets
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import select

from pillarbox.consumer.consumer import Consumer
from pillarbox.consumer.standing import Standing
from pillarbox.consumer.telling import Listener
from pillarbox.consumer.transactions import DatabaseAway
from pillarbox.readmodel.lag import Members, Place, Told
from pillarbox.readmodel.parts import Parts
from pillarbox.schema.types import DatabaseTime

_LEAVING: Final = 5.0
_NOW: Final = timedelta()
# One may be missed.
_GOOD_FOR: Final = 2


Heard = Callable[[Standing], Awaitable[None]]
"""Told how a consumer stands, beside the database; must not raise."""


class Teller:
    """Listen to the consumer of one generation, and write what it says.

    Nothing depends on it but what operators see: a database that is away is not waited for.
    """

    def __init__(
        self, place: Place, parts: Parts, consumer: Consumer, heard: Heard | None = None
    ) -> None:
        self._place, self._parts, self._consumer, self._heard = place, parts, consumer, heard
        self._members = Members(parts.schema)
        self._member = f"{socket.gethostname()}-{secrets.token_hex(6)}"
        self._fresh_at: datetime | None = None
        self._every = timedelta(seconds=parts.config.tell_every)
        consumer.listener = Listener(self.hear, self._every)

    async def hear(self, standing: Standing, since: timedelta) -> None:
        """Write how the consumer stood, good until it should have told again."""
        if self._heard is not None:
            await self._heard(standing)
        # Asking the next time takes as long as it took now.
        await self._write(standing, since, good_for=(self._every + since) * _GOOD_FOR)

    async def leave(self) -> None:
        """Write how the consumer has ended: nobody tells what comes from now on."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LEAVING):
                await self._write(self._consumer.standing(), _NOW, good_for=_NOW)

    async def _write(self, standing: Standing, since: timedelta, *, good_for: timedelta) -> None:
        heard = time.monotonic()
        with suppress(DatabaseAway):
            async with self._parts.transactions.begin(None) as session:
                now: datetime = (await session.execute(select(DatabaseTime()))).scalar_one()
                then = now - since - timedelta(seconds=time.monotonic() - heard)
                told = self._told(standing, then, good_for)
                await self._members.tell(session, self._place, self._member, told)
            self._fresh_at = told.fresh_at

    def _told(self, standing: Standing, then: datetime, good_for: timedelta) -> Told:
        newest = then if standing.at_end else standing.newest
        known = [found for found in (self._fresh_at, newest) if found is not None]
        return Told(
            told_at=then,
            good_until=then + good_for,
            oldest_at=standing.oldest,
            # The clock of a producer may be ahead.
            fresh_at=min(max(known), then) if known else None,
            waiting=standing.waiting,
            in_hand=standing.in_hand,
            at_end=standing.at_end,
        )
