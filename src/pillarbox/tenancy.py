"""Tenancy: off until it is switched on; then every row belongs to a tenant, or is refused."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, text

from pillarbox.errors import InvalidConfig, TenantMismatch, TenantRequired
from pillarbox.event.context import current_tenant
from pillarbox.event.rules import check_tenant

DEFAULT_TENANT: Final = "default"
_SET_TENANT: Final = text("SELECT set_config('app.tenant', :tenant, true)")
TenantResolver = Callable[[], str | None]


@dataclass(frozen=True, slots=True)
class Tenancy:
    """Whether a tenant is required, and where it comes from when the context has none.

    `PILLARBOX_TENANCY=required` or a resolver switches tenancy on.
    """

    required: bool = False
    resolver: TenantResolver | None = None

    @classmethod
    def from_env(
        cls,
        environ: Mapping[str, str] | None = None,
        *,
        resolver: TenantResolver | None = None,
    ) -> "Tenancy":
        """Read `PILLARBOX_TENANCY`: `off` (the default) or `required`."""
        mode = (os.environ if environ is None else environ).get("PILLARBOX_TENANCY", "off")
        if mode not in ("off", "required"):
            raise InvalidConfig(
                "PILLARBOX_TENANCY", f"is {mode!r}", "set it to `off` or `required`"
            )
        return cls(required=mode == "required" or resolver is not None, resolver=resolver)

    def ambient(self) -> str | None:
        """Return the tenant that the running code works for, from context or resolver."""
        ambient = current_tenant()
        return ambient if ambient is not None or self.resolver is None else self.resolver()

    def resolve(self, named: str, what: str) -> str:
        """Return the tenant of a call that names one; `default` stands for the ambient tenant."""
        ambient = self.ambient()
        if named != DEFAULT_TENANT:
            if ambient is not None and ambient != named:
                raise TenantMismatch(what, named, ambient)
            return check_tenant(named)
        if ambient is not None:
            return check_tenant(ambient)
        if self.required:
            raise TenantRequired(what)
        return DEFAULT_TENANT


def enter_tenant(connection: Connection, tenant_id: str) -> None:
    """Tell the database which tenant the running transaction works for; it ends with it."""
    if connection.dialect.name == "postgresql":
        connection.execute(_SET_TENANT, {"tenant": tenant_id})
