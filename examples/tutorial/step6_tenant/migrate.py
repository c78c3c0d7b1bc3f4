"""What the owner of the database does before the service starts: tables, wall and role."""

import secrets

from psycopg import sql
from sqlalchemy import Connection, create_engine, make_url

from examples.tutorial.step6_tenant.orders import Base
from pillarbox.database import sync_url
from pillarbox.schema import SchemaOptions, apply, tenant_policies

ROLE = "tutorial_service"


def migrate(owner_url: str) -> str:
    """Make what is missing; return the address by which the service connects."""
    password = secrets.token_urlsafe(16)
    engine = create_engine(sync_url(owner_url))
    with engine.begin() as connection:
        apply(connection, SchemaOptions(tenancy=True))  # `pillarbox schema apply --tenancy`
        Base.metadata.create_all(connection)
        for statement in tenant_policies("tenant_orders", projector_role=None):
            connection.exec_driver_sql(statement)
        connection.exec_driver_sql("GRANT SELECT, INSERT ON tenant_orders TO pillarbox_app")
        _make_role(connection, password)
    engine.dispose()
    service = make_url(owner_url).set(username=ROLE, password=password)
    return service.render_as_string(hide_password=False)


def _make_role(connection: Connection, password: str) -> None:
    found = connection.exec_driver_sql("SELECT FROM pg_roles WHERE rolname = %s", (ROLE,))
    act = "CREATE ROLE {} LOGIN PASSWORD {} IN ROLE pillarbox_app"
    if found.first() is not None:
        act = "ALTER ROLE {} PASSWORD {}"
    statement = sql.SQL(act).format(sql.Identifier(ROLE), password)
    connection.exec_driver_sql(statement.as_string())
