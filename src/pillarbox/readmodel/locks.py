"""Locks of read models that are no rows; PostgreSQL holds them until the transaction ends.

Many write a subscribed model side by side, each with a share of its row. On a row a share passes by
whoever waits to have it alone, so under load nobody ever had it. These locks are given out in turn.
"""

import hashlib

from sqlalchemy import Select, func, select


def lock_of(name: str) -> int:
    """Return the number of a lock."""
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def side_by_side(model: str, schema: str | None) -> Select[None]:
    """Take a model's lock as one of many; to be asked before its row is."""
    return select(func.pg_advisory_xact_lock_shared(_turnstile(model, schema)))


def alone(model: str, schema: str | None) -> Select[None]:
    """Take a model's lock when all have ended who have it, and before those who ask later."""
    return select(func.pg_advisory_xact_lock(_turnstile(model, schema)))


def _turnstile(model: str, schema: str | None) -> int:
    return lock_of(f"{schema or ''}\0{model}")
