"""What the database says of itself before a projector joins."""

import psycopg
from psycopg.errors import InsufficientPrivilege, UndefinedTable

from pillarbox.errors import (
    DatabaseUnreachable,
    GrantsMissing,
    SchemaMissing,
    SchemaOutdated,
)
from pillarbox.event.rules import check_identifier
from pillarbox.projector.postgres.line import Connect
from pillarbox.schema.tables import SCHEMA_VERSION


async def read_shard_count(connect: Connect, schema: str | None) -> int:
    """Return the number of shards; refuse a database that is not ready for a projector."""
    prefix = "" if schema is None else f'"{check_identifier("schema", schema)}".'
    query = f"SELECT schema_version, shard_count, current_user FROM {prefix}outbox_settings"  # noqa: S608 - the schema's name is checked
    try:
        connection = await connect()
        async with connection:
            row = await (await connection.execute(query.encode())).fetchone()
    except UndefinedTable:
        raise SchemaMissing(f"schema {schema}" if schema else "the database") from None
    except InsufficientPrivilege as error:
        raise GrantsMissing("of the projector", "outbox_settings") from error
    except (psycopg.OperationalError, OSError) as error:
        raise DatabaseUnreachable("the projector's address") from error
    if row is None:
        raise SchemaMissing(f"schema {schema}" if schema else "the database")
    if row[0] != SCHEMA_VERSION:
        raise SchemaOutdated(row[0], SCHEMA_VERSION)
    return int(row[1])
