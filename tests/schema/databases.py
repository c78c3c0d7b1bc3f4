"""One database per server for the tests of the schema, emptied for each of them."""

from functools import cache

from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from pillarbox.database import sync_url
from pillarbox.servers import Postgres

SCHEMAS = text("SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_|^information_schema$'")


@cache
def shared_database(server: Postgres) -> str:
    """Make one database per server; to create and drop one for each test would take minutes."""
    url = server.create_database("schema_tests")
    engine = create_engine(sync_url(url), poolclass=NullPool)
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER DATABASE schema_tests SET synchronous_commit = off")
    return url


def emptied(server: Postgres) -> str:
    """Return the address of a database without any table."""
    url = shared_database(server)
    with create_engine(sync_url(url), poolclass=NullPool).begin() as connection:
        for schema in connection.scalars(SCHEMAS).all():
            connection.exec_driver_sql(f'DROP SCHEMA "{schema}" CASCADE')
        connection.exec_driver_sql("CREATE SCHEMA public")
    return url
