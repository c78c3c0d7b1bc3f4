"""Sagas that ended long ago go, with their steps; those that are open never do."""

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from pillarbox.consumer.batch import Books
from pillarbox.saga.store import Store
from pillarbox.tenancy import DEFAULT_TENANT

BATCH: Final = 500


class Retention:
    """Delete ended sagas as old as the inbox's records may be: a chore of their consumer."""

    def __init__(
        self, store: Store, chance: random.Random, now: Callable[[], float], batch: int = BATCH
    ) -> None:
        self._store, self._chance, self._now, self._batch = store, chance, now, batch
        self._next: dict[str | None, float] = {}

    async def look(self, books: Books, tenant_id: str | None) -> bool:
        """Delete a batch of a tenant, or of all; when all is gone, not again for a while."""
        if self._now() < self._next.get(tenant_id, 0.0):
            return False
        age = timedelta(days=books.config.retention_days)
        async with books.transactions.begin(tenant_id or DEFAULT_TENANT) as session:
            gone = await self._store.forget(session, tenant_id, age, self._batch)
        if gone < self._batch:
            pause = books.config.cleanup_every * self._chance.uniform(0.5, 1.5)
            self._next[tenant_id] = self._now() + pause
        return gone == self._batch
