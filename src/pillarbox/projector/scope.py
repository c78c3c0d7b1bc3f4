"""Whom a projector serves: every tenant, some tenants, or a bucket of tenants."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Final, NamedTuple

from pillarbox.errors import InvalidConfig, ScopeOverlaps
from pillarbox.event.rules import check_tenant

_NAME_MAX: Final = 255
_BUCKETS_MAX: Final = 1024


@dataclass(frozen=True, slots=True)
class Scope:
    """A set of tenants: the listed ones, a bucket of all, or all."""

    tenants: tuple[str, ...] = ()
    bucket: int | None = None
    buckets: int | None = None

    def __str__(self) -> str:
        if self.tenants:
            return "tenants:" + ",".join(self.tenants)
        return "all" if self.bucket is None else f"bucket:{self.bucket}/{self.buckets}"

    @property
    def name(self) -> str:
        """The name under which leases are held; long lists are named by their hash."""
        text = str(self)
        digest = sha256(text.encode()).hexdigest()
        return text if len(text) <= _NAME_MAX else f"tenants#{digest}"

    def parameters(self) -> dict[str, object]:
        """Return the values of a statement's condition on tenants."""
        return {
            "scope_tenants": list(self.tenants),
            "scope_bucket": self.bucket,
            "scope_buckets": self.buckets,
        }

    def serves(self, tenant_id: str) -> bool:
        """Tell whether a tenant belongs here."""
        if self.tenants:
            return tenant_id in self.tenants
        return self.buckets is None or bucket_of(tenant_id, self.buckets) == self.bucket

    def overlaps(self, other: "Scope") -> bool:
        """Tell whether a tenant can belong to both."""
        if self.tenants:
            return any(other.serves(tenant) for tenant in self.tenants)
        if other.tenants:
            return other.overlaps(self)
        if self.buckets is None or other.buckets is None:
            return True
        return self.buckets != other.buckets or self.bucket == other.bucket


class Neighbour(NamedTuple):
    """A living member, as the rows tell of it."""

    served: str
    host: str
    process_id: int


ALL: Final = Scope()


def check_apart(scope: Scope, neighbours: Iterable[Neighbour]) -> None:
    """Refuse to work beside one that serves some of the same tenants, and not the same set."""
    for served, host, process_id in neighbours:
        if _in_the_way(scope, served):
            raise ScopeOverlaps(str(scope), served, f"{host}, process {process_id}")


def scope_of(tenant_id: str | Sequence[str] | None, bucket: str | None = None) -> Scope:
    """Make a scope from what a constructor was given: a tenant, several, or none for all."""
    if bucket is not None:
        if tenant_id is not None:
            raise InvalidConfig("bucket", "is given together with tenant_id", "give one of them")
        return _bucket(bucket)
    if tenant_id is None:
        return ALL
    listed = (tenant_id,) if isinstance(tenant_id, str) else tuple(tenant_id)
    if not listed:
        raise InvalidConfig("tenant_id", "is an empty list", "pass None to serve every tenant")
    return Scope(tenants=tuple(sorted({check_tenant(tenant) for tenant in listed})))


def read_scope(text: str) -> Scope:
    """Read a scope as `str` wrote it."""
    kind, _, rest = text.partition(":")
    if kind == "tenants":
        return Scope(tenants=tuple(rest.split(",")))
    return _bucket(rest) if kind == "bucket" else ALL


def bucket_of(tenant_id: str, buckets: int) -> int:
    """Return the bucket of a tenant: the first two bytes of SHA-256, modulo the count."""
    return int.from_bytes(sha256(tenant_id.encode()).digest()[:2], "big") % buckets


@lru_cache(maxsize=1_024)
def _in_the_way(scope: Scope, served: str) -> bool:
    other = read_scope(served)
    return other != scope and other.overlaps(scope)


def _bucket(text: str) -> Scope:
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and int(number) < int(count) <= _BUCKETS_MAX):
        raise InvalidConfig("bucket", f"is {text!r}", "write it as 0/8, up to 1,024 buckets")
    return Scope(bucket=int(number), buckets=int(count))
