"""Where a key belongs: a portable hash for its shard, and a number for its lock.

The hash is the first two bytes of SHA-256 over tenant, NUL and key, in UTF-8: any language and
plain SQL can compute it, and `tests/event/test_shard.py` holds golden vectors. It is stored with
each row and never changes; the shard is `hash & (count - 1)`, with the count kept in the
database's settings row.
"""

from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple


class Place(NamedTuple):
    """The shard hash of a key, and the number of its advisory lock."""

    shard_hash: int
    lock: int


def place_of(tenant_id: str, key: str) -> Place:
    """Return where the events of a key belong."""
    digest = sha256(b"%b\x00%b" % (tenant_id.encode(), key.encode())).digest()
    return Place(
        int.from_bytes(digest[:2], "big"), int.from_bytes(digest[2:10], "big", signed=True)
    )


@lru_cache(maxsize=4096)
def gate_of(tenant_id: str) -> int:
    """Return the number of a tenant's gate: the lock that stands for all its keys."""
    return int.from_bytes(sha256(b"gate\x00" + tenant_id.encode()).digest()[:8], "big", signed=True)


def shard_of(shard_hash: int, shard_count: int) -> int:
    """Return the shard of a hash; the count is a power of two."""
    return shard_hash & (shard_count - 1)
