"""Compare the schema of a database with what this code needs."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import CheckConstraint, Connection, Table

from pillarbox.clock import SYSTEM_CLOCK
from pillarbox.schema.catalog import (
    LIVE_VIEW,
    Catalog,
    Settings,
    locate,
    read_catalog,
    read_settings,
)
from pillarbox.schema.options import SchemaOptions
from pillarbox.schema.partitions import existing_partitions, running_out
from pillarbox.schema.tables import SCHEMA_VERSION, SEQUENCES, TENANT_TABLES, metadata

SHARD_HASH = "sha256-16"
_APPLY = "run `pillarbox schema apply`"


@dataclass(frozen=True, slots=True)
class Finding:
    """One difference between the database and the code, with what to do about it."""

    code: str
    subject: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.problem}; {self.remedy}"


def check(
    connection: Connection,
    options: SchemaOptions | None = None,
    *,
    now: datetime | None = None,
) -> list[Finding]:
    """Say everything that differs; an empty list means that the schema is as it should be."""
    options = options or SchemaOptions()
    namespace = locate(connection, options.schema)
    if namespace is None:
        return [Finding("schema-missing", "outbox", "the tables are missing", _APPLY)]
    catalog = read_catalog(connection, namespace)
    findings = [*missing_tables(catalog), *missing_parts(catalog)]
    if "outbox_settings" in catalog.columns:
        settings = read_settings(connection, _schema_of(connection, namespace))
        findings += differing_settings(settings, options)
        findings += differing_claim_index(catalog, settings)
        if settings and settings.layout == "partitioned":
            partitions = existing_partitions(connection, namespace)
            problem = running_out(partitions, now or SYSTEM_CLOCK.now())
            findings += [Finding("partitions-missing", "outbox", p, _APPLY) for p in [problem] if p]
    if options.tenancy and connection.dialect.name == "postgresql":
        findings += missing_walls(catalog)
    return findings


def missing_tables(catalog: Catalog) -> Iterator[Finding]:
    """Find tables, columns, keys and constraints that are not there."""
    for table in metadata.sorted_tables:
        if table.name not in catalog.columns:
            yield Finding("table-missing", table.name, "the table is missing", _APPLY)
            continue
        for column in table.columns:
            if column.name not in catalog.columns[table.name]:
                name = f"{table.name}.{column.name}"
                yield Finding("column-missing", name, "the column is missing", _restore(table))
        key = [column.name for column in table.primary_key]
        if catalog.keys.get(table.name) != key:
            problem = f"the primary key is not ({', '.join(key)})"
            yield Finding("key-differs", table.name, problem, _restore(table))
        for name in _check_names(table) - catalog.constraints:
            subject = f"{table.name}.{name}"
            yield Finding("constraint-missing", subject, "the check is missing", _restore(table))


def missing_parts(catalog: Catalog) -> Iterator[Finding]:
    """Find indexes, the view and the sequence that are not there, or not whole."""
    names = sorted(str(i.name) for table in metadata.sorted_tables for i in table.indexes)
    for name in names:
        if name not in catalog.indexes:
            yield Finding("index-missing", name, "the index is missing", _APPLY)
        elif not catalog.indexes[name].valid:
            remedy = f"`DROP INDEX {name}`, then {_APPLY}"
            yield Finding("index-invalid", name, "the index is not valid", remedy)
    if LIVE_VIEW not in catalog.columns:
        yield Finding("view-missing", LIVE_VIEW, "the view is missing", _APPLY)
    elif not catalog.view_invoker:
        problem = "the view reads with its owner's rights (security_invoker is off)"
        yield Finding("view-unsafe", LIVE_VIEW, problem, _APPLY)
    for name in sorted(set(SEQUENCES) - catalog.sequences):
        yield Finding("sequence-missing", name, "the sequence is missing", _APPLY)


def differing_settings(settings: Settings | None, options: SchemaOptions) -> Iterator[Finding]:
    """Find settings that are not what this process was told."""
    where = "outbox_settings"
    if settings is None:
        yield Finding("settings-missing", where, "the settings row is missing", _APPLY)
        return
    if settings.schema_version != SCHEMA_VERSION:
        problem = f"the schema is at {settings.schema_version}, this version needs {SCHEMA_VERSION}"
        remedy = _APPLY if settings.schema_version < SCHEMA_VERSION else "upgrade pillarbox"
        yield Finding("schema-outdated", where, problem, remedy)
    if options.shards not in (None, settings.shard_count):
        problem = f"shard_count is {settings.shard_count}, expected {options.shards}"
        yield Finding("shards-differ", where, problem, "use the database's number of shards")
    if settings.shard_hash != SHARD_HASH:
        problem = f"shard_hash is {settings.shard_hash}, expected {SHARD_HASH}"
        yield Finding("shards-differ", where, problem, "use the version that wrote the rows")
    layout = {None: settings.layout, True: "partitioned", False: "plain"}[options.partitioned]
    if settings.layout != layout:
        problem = f"layout is {settings.layout}, expected {layout}"
        yield Finding("layout-differs", where, problem, "use the database's layout")


def differing_claim_index(catalog: Catalog, settings: Settings | None) -> Iterator[Finding]:
    """Find a claim index that was built for another number of shards."""
    index = catalog.indexes.get("ix_outbox_claim")
    if settings is None or index is None:
        return
    if f"(shard_hash & {settings.shard_count - 1})" not in index.definition:
        problem = f"the index is not built for {settings.shard_count} shards"
        remedy = f"`DROP INDEX ix_outbox_claim`, then {_APPLY}"
        yield Finding("index-differs", "ix_outbox_claim", problem, remedy)


def missing_walls(catalog: Catalog) -> Iterator[Finding]:
    """Find tenant tables, partitions included, that row-level security does not guard."""
    tables = {table.name for table in TENANT_TABLES}
    parts = catalog.columns.keys() - metadata.tables.keys() - {LIVE_VIEW}
    for name in sorted((tables | parts) & catalog.columns.keys() - catalog.walled):
        problem = "row-level security is not enabled, forced and given its policy"
        yield Finding("wall-missing", name, problem, f"{_APPLY.removesuffix('`')} --tenancy`")


def _restore(table: Table) -> str:
    return f"restore {table.name} as `pillarbox schema sql` prints it"


def _check_names(table: Table) -> set[str]:
    return {str(c.name) for c in table.constraints if isinstance(c, CheckConstraint)}


def _schema_of(connection: Connection, namespace: str) -> str | None:
    return namespace if connection.dialect.name == "postgresql" else None
