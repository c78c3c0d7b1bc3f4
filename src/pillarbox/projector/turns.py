"""Whose turn it is: the pairs (shard, tenant) that may have unread rows."""

from collections import deque
from collections.abc import Container, Iterable, Iterator
from typing import NamedTuple


class Pair(NamedTuple):
    """A tenant's rows in a shard, read up to a number."""

    shard: int
    tenant_id: str
    after: int


class Turns:
    """Remember the pairs with a backlog, and go round: tenants first, then their shards."""

    def __init__(self) -> None:
        self._after: dict[tuple[int, str], int] = {}
        self._shards: dict[str, deque[int]] = {}

    def __len__(self) -> int:
        return len(self._after)

    def __contains__(self, tenant_id: object) -> bool:
        return tenant_id in self._shards

    def add(self, shard: int, tenant_id: str, after: int) -> None:
        """Have a pair read from a number on, or from an earlier one than before."""
        known = self._after.get((shard, tenant_id))
        if known is None:
            self._shards.setdefault(tenant_id, deque()).append(shard)
        self._after[shard, tenant_id] = after if known is None else min(known, after)

    def after(self, shard: int, tenant_id: str) -> int | None:
        """Return the number up to which a pair was read; None if it has no backlog."""
        return self._after.get((shard, tenant_id))

    def next(self, count: int, passed_over: Container[str] = ()) -> list[Pair]:
        """Pick the pairs whose turn it is; the next call begins where this one ended."""
        picked: list[Pair] = []
        waiting = deque(tenant for tenant in self._shards if tenant not in passed_over)
        left = {tenant: len(self._shards[tenant]) for tenant in waiting}
        while waiting and len(picked) < count:
            tenant = waiting.popleft()
            shards = self._shards[tenant]
            shard = shards[0]
            shards.rotate(-1)
            picked.append(Pair(shard, tenant, self._after[shard, tenant]))
            left[tenant] -= 1
            if left[tenant]:
                waiting.append(tenant)
        for tenant in dict.fromkeys(pair.tenant_id for pair in picked):
            self._shards[tenant] = self._shards.pop(tenant)  # served: to the end of the round
        return picked

    def advance(self, shard: int, tenant_id: str, after: int) -> None:
        """Note how far a pair was read."""
        self._after[shard, tenant_id] = after

    def exhausted(self, shard: int, tenant_id: str) -> None:
        """Take a pair out: it has no unread rows."""
        if self._after.pop((shard, tenant_id), None) is not None:
            self._drop(shard, tenant_id)

    def forget(self, shards: Iterable[int]) -> None:
        """Take out every pair of these shards."""
        gone = set(shards)
        for shard, tenant_id in [pair for pair in self._after if pair[0] in gone]:
            self.exhausted(shard, tenant_id)

    def tenants(self) -> Iterator[str]:
        """Name the tenants with a backlog."""
        return iter(self._shards)

    def _drop(self, shard: int, tenant_id: str) -> None:
        shards = self._shards[tenant_id]
        shards.remove(shard)
        if not shards:
            del self._shards[tenant_id]
