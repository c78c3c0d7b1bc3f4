"""Calls whose tenant is missing or is not the caller's own."""

from pillarbox.errors.root import PillarboxError


class TenantError(PillarboxError):
    """The tenant of a call is missing or is not the caller's own."""

    code = "tenant"


class TenantRequired(TenantError):
    """Tenancy is switched on and the call names no tenant."""

    code = "tenant-required"

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} needs a tenant, and neither an argument nor the context names one; "
            "pass tenant_id=… or enter `with tenant(…):` around the call"
        )


class TenantMismatch(TenantError):
    """A call names another tenant than the one its context belongs to."""

    code = "tenant-mismatch"

    def __init__(self, what: str, named: str, current: str) -> None:
        super().__init__(
            f"{what} names tenant {named!r} inside the context of tenant {current!r}; "
            "leave the context first, or drop the argument"
        )
        self.named, self.current = named, current
