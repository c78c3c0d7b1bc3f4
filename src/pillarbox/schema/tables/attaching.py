"""Give the tables to a user's metadata, or to another schema."""

from functools import cache
from typing import Any, Final

from sqlalchemy import Connection, DefaultClause, MetaData, Sequence, Table, event
from sqlalchemy.schema import conv
from sqlalchemy.sql.schema import SchemaConst

from pillarbox.schema.tables.columns import SEQUENCES, metadata
from pillarbox.schema.tables.outbox import outbox_settings
from pillarbox.schema.types import NextNumber

SCHEMA_VERSION: Final = 3


def _insert_settings(table: Table, connection: Connection, **options: Any) -> None:
    """Have `create_all` write the settings row, without which no process starts."""
    del options
    connection.execute(table.insert().values(id=1, schema_version=SCHEMA_VERSION))


event.listen(outbox_settings, "after_create", _insert_settings)


def attach(target: MetaData, *, schema: str | None = None) -> MetaData:
    """Copy the tables into a user's metadata, so that `create_all` and Alembic know them.

    The view `outbox_live` and the storage settings come with `pillarbox schema apply`, which may be
    run afterwards.
    """
    for table in metadata.sorted_tables:
        copied = _copied(table, target, schema)
        if table is outbox_settings:
            event.listen(copied, "after_create", _insert_settings)
        if schema is not None:
            _number_from(copied, schema)
    for name in SEQUENCES:
        Sequence(name, schema=schema, metadata=target)
    return target


@cache
def table_in(table: Table, schema: str | None) -> Table:
    """Return one of these tables as it stands in a schema."""
    return (
        table if schema is None else attach(MetaData(), schema=schema).tables[f"{schema}.{table}"]
    )


def _copied(table: Table, target: MetaData, schema: str | None) -> Table:
    """Copy a table and the names of its constraints, whatever convention the user has for names."""
    convention, target.naming_convention = target.naming_convention, metadata.naming_convention
    try:
        copied = table.to_metadata(target, schema=schema or SchemaConst.RETAIN_SCHEMA)
    finally:
        target.naming_convention = convention
    for constraint in copied.constraints:
        # The other name is PostgreSQL's for a primary key that has none, as in the migrations.
        constraint.name = conv(str(constraint.name or f"{table.name}_pkey"))
    return copied


def _number_from(table: Table, schema: str) -> None:
    """Have a copied table draw its numbers from the sequence of its own schema."""
    for column in table.columns:
        default = column.server_default
        if isinstance(default, DefaultClause) and isinstance(default.arg, NextNumber):
            column.server_default = DefaultClause(NextNumber(f"{schema}.{default.arg.sequence}"))
