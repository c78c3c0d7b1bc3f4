"""The locks that make the order of writers: see decision 0003."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from pillarbox.event.shard import gate_of
from pillarbox.outbox.row import EventRow

# Beyond this many keys a bulk closes its tenant's gate instead of taking a lock for each key:
# the server's lock table is shared by all sessions and would overflow.
MAX_KEY_LOCKS: Final = 64


class Lock(NamedTuple):
    """An advisory transaction lock to take before rows are numbered."""

    number: int
    shared: bool


def locks_for(rows: Sequence[EventRow]) -> list[Lock]:
    """Choose a batch's locks, in the order to take them.

    Each tenant has a gate. A writer shares it and locks its keys; a bulk of many keys closes it.
    """
    if len(rows) == 1:  # the usual case, and in the way of every commit
        (row,) = rows
        if row.key_lock is None:
            return []
        return [Lock(gate_of(row.tenant_id), shared=True), Lock(row.key_lock, shared=False)]
    by_tenant: dict[str, set[int]] = {}
    for row in rows:
        if row.key_lock is not None:
            by_tenant.setdefault(row.tenant_id, set()).add(row.key_lock)
    bulk = sum(map(len, by_tenant.values())) > MAX_KEY_LOCKS
    gates = [Lock(number, shared=not bulk) for number in sorted(map(gate_of, by_tenant))]
    keys = () if bulk else sorted(set().union(*by_tenant.values()))
    return gates + [Lock(number, shared=False) for number in keys]
