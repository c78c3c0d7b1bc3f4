"""The store through a session factory: portable, one call after the other, no connection of its own."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Self
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from pillarbox.outbox.release import CHUNK
from pillarbox.projector.config import OutboxProjectorConfig
from pillarbox.projector.scope import Scope
from pillarbox.projector.session.blocking import Blocking
from pillarbox.projector.session.claims import Claims
from pillarbox.projector.session.fence import Fence
from pillarbox.projector.session.leases import Leases
from pillarbox.projector.session.settling import Settling
from pillarbox.projector.session.tables import Tables
from pillarbox.projector.session.transactions import Transactions
from pillarbox.projector.session.waiting import Waiting
from pillarbox.projector.store import (
    Claimed,
    ClaimRequest,
    Control,
    Member,
    OutboxEvent,
    Ownership,
    Promoted,
    Settled,
    Settlement,
)


class SessionStore:
    """Read and write the outbox for one member, through sessions of the user's.

    It serves SQLite, and tests in one transaction: a factory that is bound to one connection needs
    no second one, and what is committed here ends with the transaction around it. Nobody else may
    use that connection during a call.
    """

    def __init__(
        self,
        session_factory: async_sessionmaker[AsyncSession],
        *,
        config: OutboxProjectorConfig,
        scope: Scope,
        member_id: UUID,
        source: str,
        schema: str | None,
        shards: int,
    ) -> None:
        tables = Tables(schema, shards)
        fence = Fence(tables, scope.name, member_id)
        # A transaction that outlives the lease is of no use to anybody.
        self._transactions = Transactions(session_factory, tables.lease, config.lease)
        self._claims = Claims(tables, fence, scope=scope, source=source, config=config)
        self._blocking = Blocking(tables)
        self._settling = Settling(tables, fence, self._blocking, config)
        self._leases = Leases(tables, scope, self._settling, timedelta(seconds=config.lease))
        self._waiting = Waiting(tables)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def join(self, member: Member) -> None:
        """Refuse an overlapping scope, become a member."""
        await self._transactions.write(lambda connection: self._leases.join(connection, member))

    async def keep(self, active: Sequence[UUID]) -> Ownership:
        """Show signs of life, renew and take leases; clear claims of ours that are not active."""
        ownership = await self._transactions.write(self._leases.keep)
        await self._transactions.write(lambda connection: self._leases.tidy(connection, active))
        return ownership

    async def hand_over(self, shards: Sequence[int]) -> None:
        """Give leases back."""
        await self._transactions.write(
            lambda connection: self._leases.hand_over(connection, shards)
        )

    async def leave(self) -> None:
        """Give everything back and be no member any more."""
        await self._transactions.write(self._leases.leave)

    async def claim(self, request: ClaimRequest) -> Claimed:
        """Read the next events and commit a claim on them."""
        return await self._transactions.write(
            lambda connection: self._claims.claim(connection, request)
        )

    async def settle(self, settlement: Settlement, epochs: Mapping[int, int]) -> Settled:
        """Write outcomes, fenced."""
        return await self._transactions.write(
            lambda connection: self._settling.settle(connection, settlement, epochs)
        )

    def read_again(self, events: Sequence[OutboxEvent]) -> None:
        """Do nothing: a claim reads whatever is claimable and not in hand."""

    def forget(self, shards: Iterable[int]) -> None:
        """Take nothing as known of these shards."""
        self._claims.forget(shards)

    async def promote(self, shards: Sequence[int]) -> Promoted:
        """Make claimable what has become due."""
        return await self._transactions.write(
            lambda connection: self._waiting.promote(connection, shards)
        )

    async def waiting_topics(self) -> Sequence[str]:
        """Name the topics that keys wait for."""
        return await self._transactions.read(self._waiting.topics)

    async def release_topic(
        self, topic: str, keys: int, apart: Mapping[str, int], chunk: int = CHUNK
    ) -> int:
        """Let go of keys that wait for a topic."""
        return await self._transactions.write(
            lambda connection: self._blocking.release_topic(connection, topic, keys, apart, chunk)
        )

    async def controls(self) -> Sequence[Control]:
        """Read what operators asked for."""
        return await self._transactions.read(self._waiting.controls)

    async def log_readers(self) -> Sequence[str]:
        """Name the read models that follow the outbox's log."""
        return await self._transactions.read(self._waiting.log_readers)

    @asynccontextmanager
    async def wake_ups(self) -> AsyncIterator[AsyncIterator[None]]:
        """Hear of nothing: commits of this process are told by its engine, others are polled for."""
        yield _silence()

    async def close(self) -> None:
        """Leave the connections to whoever has made the factory."""


async def _silence() -> AsyncIterator[None]:
    """Wait until cancelled."""
    await asyncio.Event().wait()
    yield
