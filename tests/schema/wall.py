"""A database with tenancy, and transactions as its roles."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Connection, Engine, text

from pillarbox.schema import SchemaOptions, apply
from pillarbox.schema.partitions import DAY
from tests.schema.rows import record

APP, PROJECTOR = "pillarbox_app", "pillarbox_projector"
SET_TENANT = text("SELECT set_config('app.tenant', :tenant, true)")


@pytest.fixture(params=[False, True], ids=["plain", "partitioned"])
def walled(request: pytest.FixtureRequest, engine: Engine) -> Engine:
    """A database with tenancy, and one event each of two tenants."""
    apply(engine, SchemaOptions(tenancy=True, partitioned=request.param, ahead=DAY))
    with engine.begin() as connection:
        record(connection, 1, tenant_id="acme")
        record(connection, 2, tenant_id="globex")
    return engine


@contextmanager
def acting(engine: Engine, role: str, tenant: str | None = None) -> Iterator[Connection]:
    """Open a transaction as a role, for a tenant; it is rolled back."""
    with engine.connect() as connection:
        connection.exec_driver_sql(f"SET LOCAL ROLE {role}")
        if tenant is not None:
            connection.execute(SET_TENANT, {"tenant": tenant})
        yield connection
        connection.rollback()


def tenants(connection: Connection) -> list[str]:
    return sorted(connection.scalars(text("SELECT tenant_id FROM outbox")))
