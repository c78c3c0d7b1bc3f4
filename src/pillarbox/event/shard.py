"""Where a key belongs: a portable hash for its shard, and a number for its lock.

The hash is the first two bytes of SHA-256 over tenant, NUL and key, in UTF-8: any language and
plain SQL can compute it, and `tests/event/test_shard.py` holds golden vectors. It is stored with
each row and never changes; the shard is `hash & (count - 1)`, with the count kept in the
database's settings row.
"""

from functools import lru_cache
from hashlib import sha256
from struct import Struct
from typing import Final, NamedTuple

_PLACE: Final = Struct(">Hq")  # the first two bytes, and the next eight with a sign


class Place(NamedTuple):
    """The shard hash of a key, and the number of its advisory lock."""

    shard_hash: int
    lock: int


def place_of(tenant_id: str, key: str) -> Place:
    """Return where the events of a key belong."""
    return Place(*_PLACE.unpack_from(sha256(f"{tenant_id}\0{key}".encode()).digest()))


@lru_cache(maxsize=4096)
def gate_of(tenant_id: str) -> int:
    """Return the number of a tenant's gate: the lock that stands for all its keys."""
    return int.from_bytes(sha256(b"gate\x00" + tenant_id.encode()).digest()[:8], "big", signed=True)


def shard_of(shard_hash: int, shard_count: int) -> int:
    """Return the shard of a hash; the count is a power of two."""
    return shard_hash & (shard_count - 1)
