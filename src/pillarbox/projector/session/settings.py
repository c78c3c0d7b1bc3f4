"""What the database says of itself before a projector joins."""

from sqlalchemy import Connection, inspect, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from pillarbox.errors import DatabaseUnreachable, GrantsMissing, SchemaMissing, SchemaOutdated
from pillarbox.outbox.capture import SETTINGS
from pillarbox.projector.session.transactions import to_the_end
from pillarbox.schema.tables import SCHEMA_VERSION, outbox_settings, table_in


async def read_shard_count(factory: async_sessionmaker[AsyncSession], schema: str | None) -> int:
    """Return the number of shards; refuse a database that is not ready for a projector."""
    try:
        return await to_the_end(_read(factory, schema))
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) == "42501":
            raise GrantsMissing("of the session", "outbox_settings") from error
        raise DatabaseUnreachable("the session's address") from error
    except OSError as error:
        raise DatabaseUnreachable("the session's address") from error


async def _read(factory: async_sessionmaker[AsyncSession], schema: str | None) -> int:
    async with factory() as session:
        session.info.pop(SETTINGS, None)
        async with session.begin():
            connection = await session.connection()
            return await connection.run_sync(_shard_count, schema)


def _shard_count(connection: Connection, schema: str | None) -> int:
    settings = table_in(outbox_settings, schema)
    if not inspect(connection).has_table(settings.name, schema=schema):
        raise SchemaMissing(f"schema {schema}" if schema else "the database")
    row = connection.execute(select(settings.c.schema_version, settings.c.shard_count)).first()
    if row is None:
        raise SchemaMissing(f"schema {schema}" if schema else "the database")
    if row.schema_version != SCHEMA_VERSION:
        raise SchemaOutdated(row.schema_version, SCHEMA_VERSION)
    return int(row.shard_count)
