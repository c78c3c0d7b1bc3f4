"""Delete the rows of keys whose time is over, a batch at a time, again and again."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncEngine

from pillarbox.idempotency.observer import Observer
from pillarbox.idempotency.store import CommandStore
from pillarbox.tenancy import enter_tenant

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Cleanup:
    """Forget expired keys about once in each period, in every process that runs it.

    Processes do not hinder one another: each passes over the rows that another one deletes. Where
    rows are walled by tenant, it looks after every tenant that has sent a command to any process.
    """

    engine: AsyncEngine
    store: CommandStore
    tenancy: bool = False
    observer: Observer = field(default_factory=Observer)
    every: timedelta = timedelta(minutes=1)
    batch: int = 1_000
    chance: random.Random = field(default_factory=random.Random)
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep

    async def run(self) -> None:
        """Sweep until cancelled; a database that is away only delays it."""
        while True:
            # Spread, so that processes which started together do not all come at once.
            await self.sleep(self.every.total_seconds() * self.chance.uniform(0.5, 1.5))
            try:
                await self.sweep()
            except Exception as error:  # requests matter more; it is tried again
                log.warning("expired_keys_not_deleted", exc_info=True)
                self.observer.not_forgotten(error)

    async def sweep(self) -> int:
        """Delete all that has expired, each batch in a transaction of its own; return how many."""
        total = 0
        for tenant_id in await self._tenants():
            deleted = self.batch
            while deleted == self.batch:
                async with self.engine.begin() as connection:
                    deleted = await connection.run_sync(self._delete, tenant_id)
                total += deleted
                self.observer.forgotten(deleted)
        return total

    async def _tenants(self) -> Sequence[str | None]:
        if not self.tenancy or self.engine.dialect.name != "postgresql":
            return (None,)  # one look serves all
        async with self.engine.begin() as connection:
            return await connection.run_sync(self.store.tenants.known)

    def _delete(self, connection: Connection, tenant_id: str | None) -> int:
        if tenant_id is not None:
            enter_tenant(connection, tenant_id)
        return self.store.forget_expired(connection, self.batch)
