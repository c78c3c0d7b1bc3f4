"""Whose key it is, and for what: the scope of a key and the fingerprint of a request."""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

LIMIT: Final = 255
_HASHED: Final = "sha256:"


@dataclass(frozen=True, slots=True)
class Scope:
    """One tenant's, one caller's key for one operation. Other scopes are independent of it."""

    tenant_id: str
    principal: str
    operation: str
    key_hash: str

    @classmethod
    def of(cls, tenant_id: str, principal: str, operation: str, key: str) -> "Scope":
        """Make the scope of a key; the key itself is not kept."""
        return cls(
            tenant_id,
            fitted(principal),
            fitted(operation),
            sha256(key.encode()).hexdigest(),
        )

    @property
    def lock(self) -> int:
        """A number for the database's advisory lock; equal numbers by chance cost a 409."""
        parts = (self.tenant_id, self.principal, self.operation, self.key_hash)
        digest = _digest(part.encode() for part in parts)
        return int.from_bytes(digest[:8], "big", signed=True)


def fitted(name: str) -> str:
    """Return a name that fits its column; a longer one is replaced by its marked hash."""
    if len(name) <= LIMIT and not name.startswith(_HASHED) and "\0" not in name:
        return name
    return _HASHED + sha256(name.encode("utf-8", "surrogatepass")).hexdigest()


def fingerprint(path: bytes, query: bytes, body: bytes) -> str:
    """Tell requests apart by path, query and body, byte for byte."""
    return _digest((path, query, body)).hex()


def _digest(parts: Iterable[bytes]) -> bytes:
    """Hash several parts so that no two ways of cutting them give the same."""
    return sha256(b"".join([len(part).to_bytes(8, "big") + part for part in parts])).digest()
