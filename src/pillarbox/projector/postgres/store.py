"""The store on PostgreSQL: three connections for claims, settling and leases, one to listen."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Self
from uuid import UUID

import psycopg

from pillarbox.outbox.release import CHUNK
from pillarbox.outbox.wakeup import CHANNEL
from pillarbox.projector.config import OutboxProjectorConfig
from pillarbox.projector.postgres.claims import Claims
from pillarbox.projector.postgres.connecting import is_pooled
from pillarbox.projector.postgres.leases import Leases
from pillarbox.projector.postgres.line import Connect, Line, failure
from pillarbox.projector.postgres.listening import notifications
from pillarbox.projector.postgres.settling import Settling
from pillarbox.projector.postgres.statements import Statements
from pillarbox.projector.postgres.waiting import Waiting
from pillarbox.projector.scope import Scope
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

log = logging.getLogger("pillarbox.projector")


class PostgresStore:
    """Read and write the outbox for one member, by psycopg."""

    def __init__(
        self,
        connect: Connect,
        *,
        config: OutboxProjectorConfig,
        scope: Scope,
        member_id: UUID,
        source: str,
        schema: str | None,
        shards: int,
    ) -> None:
        statements = Statements(
            schema=schema, shards=shards, scope=scope, by_row=config.claim == "row"
        )
        # A statement that outlives the lease is of no use to anybody.
        self._reading, self._settling, self._keeping = (
            Line(connect, config.lease) for _ in range(3)
        )
        self._connect = connect
        self._claims = Claims(
            self._reading,
            statements,
            scope=scope,
            member_id=member_id,
            source=source,
            config=config,
        )
        self._settles = Settling(
            self._settling,
            statements,
            scope=scope,
            member_id=member_id,
            config=config,
        )
        self._waiting = Waiting(self._settling, statements)
        self._leases = Leases(
            self._keeping, statements, scope=scope, shards=shards, lease=config.lease
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def join(self, member: Member) -> None:
        """Refuse an overlapping scope, become a member."""
        await self._leases.join(member)

    async def keep(self, active: Sequence[UUID]) -> Ownership:
        """Show signs of life, renew and take leases; clear claims of ours that are not active."""
        return await self._leases.keep(active)

    async def hand_over(self, shards: Sequence[int]) -> None:
        """Give leases back."""
        await self._leases.hand_over(shards)

    async def leave(self) -> None:
        """Give everything back and be no member any more."""
        await self._leases.leave()

    async def claim(self, request: ClaimRequest) -> Claimed:
        """Read the next events and commit a claim on them."""
        return await self._claims.claim(request)

    async def settle(self, settlement: Settlement, epochs: Mapping[int, int]) -> Settled:
        """Write outcomes, fenced."""
        return await self._settles.settle(settlement, epochs)

    def read_again(self, events: Sequence[OutboxEvent]) -> None:
        """Have events read again that are not in hand any more."""
        self._claims.read_again(events)

    def forget(self, shards: Iterable[int]) -> None:
        """Have shards read from their beginning when they are claimed for again."""
        self._claims.forget(shards)

    async def promote(self, shards: Sequence[int]) -> Promoted:
        """Make claimable what has become due."""
        return await self._waiting.promote(shards)

    async def waiting_topics(self) -> Sequence[str]:
        """Name the topics that keys wait for."""
        return await self._waiting.topics()

    async def release_topic(
        self, topic: str, keys: int, apart: Mapping[str, int], chunk: int = CHUNK
    ) -> int:
        """Let go of keys that wait for a topic."""
        return await self._settles.release_topic(topic, keys, apart, chunk)

    async def controls(self) -> Sequence[Control]:
        """Read what operators asked for."""
        return await self._waiting.controls()

    async def log_readers(self) -> Sequence[str]:
        """Name the read models that follow the outbox's log."""
        return await self._waiting.log_readers()

    @asynccontextmanager
    async def wake_ups(self) -> AsyncIterator[AsyncIterator[None]]:
        """Hear of commits in other processes; raises `StoreUnavailable` when the line is dead."""
        try:
            connection = await self._connect()
        except (psycopg.Error, OSError) as error:
            raise failure(error) from error
        try:
            if is_pooled(connection):
                log.info("no_wake_ups: a pooler passes no notifications on, so polling it is")
                yield _never()
            else:
                await connection.execute(f"LISTEN {CHANNEL}")
                yield notifications(connection)
        except (psycopg.Error, OSError, TimeoutError) as error:
            raise failure(error) from error
        finally:
            await connection.close()

    async def close(self) -> None:
        """Disconnect."""
        for line in (self._reading, self._settling, self._keeping):
            await line.close()


async def _never() -> AsyncIterator[None]:
    await asyncio.Event().wait()
    yield
