"""Create and extend the schema: the one way that command line, start-up and tests share."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection, Engine, text

from pillarbox.clock import SYSTEM_CLOCK
from pillarbox.errors import InvalidConfig, SchemaOutdated, SetupError
from pillarbox.migrations.frozen import VERSIONS, script, statements
from pillarbox.schema import partitions
from pillarbox.schema.catalog import Settings, locate, read_catalog, read_settings
from pillarbox.schema.drift import missing_walls
from pillarbox.schema.options import SchemaOptions
from pillarbox.schema.policies import grants_sql, policies_sql
from pillarbox.schema.tables import SCHEMA_VERSION

# A statement that waits longer would make every writer behind it wait as well.
_PATIENCE = "SET LOCAL lock_timeout = '10s'"


@dataclass(frozen=True, slots=True)
class Step:
    """A part of the work, with a title for people."""

    title: str
    statements: tuple[str, ...]

    def run(self, connection: Connection) -> None:
        """Execute the statements; every one may be repeated."""
        for statement in self.statements:
            connection.exec_driver_sql(statement)


def schema_sql(
    options: SchemaOptions | None = None,
    *,
    dialect: str = "postgresql",
    now: datetime | None = None,
) -> str:
    """Return the SQL of a new schema, for review; the same options and day give the same text."""
    options = options or SchemaOptions()
    choices = options.choices(dialect)
    texts = [script(version, choices) for version in VERSIONS]
    if choices.partitioned:
        texts += [
            "".join(f"{statement};\n" for statement in step.statements)
            for step in partition_steps(options, [], now)
        ]
    if dialect != "postgresql":
        return "\n".join(["BEGIN IMMEDIATE;\n", *texts, "COMMIT;\n"])
    if options.tenancy:
        texts += [grants_sql(options), policies_sql(options)]
    opening = [f"BEGIN;\n{_PATIENCE};"]
    if options.schema:
        opening.append(f'CREATE SCHEMA IF NOT EXISTS "{options.schema}";')
    return "\n".join([*opening, "", *texts, "COMMIT;\n"])


def apply(
    target: Engine | Connection,
    options: SchemaOptions | None = None,
    *,
    now: datetime | None = None,
) -> list[Step]:
    """Bring a database to this version; repeating it is harmless and makes new partitions.

    An engine gets a transaction of its own; on a connection the caller commits.
    """
    if isinstance(target, Engine):
        with target.begin() as connection:
            return apply(connection, options, now=now)
    steps = plan(target, options, now=now)
    for step in steps:
        step.run(target)
    return steps


def plan(
    connection: Connection,
    options: SchemaOptions | None = None,
    *,
    now: datetime | None = None,
) -> list[Step]:
    """Read the state of a database and say what there is to do."""
    dialect = connection.dialect.name
    if dialect == "postgresql":
        connection.exec_driver_sql(_PATIENCE)
    _, options = settle(connection, options or SchemaOptions())
    steps = [*_schema_step(connection, options)]
    # The versions that are there are repeated, which mends them.
    steps += [version_step(version, options, dialect) for version in VERSIONS]
    if options.partitioned:
        existing = partitions.existing_partitions(connection, options.schema)
        steps += partition_steps(options, existing, now)
    return steps + (_tenancy_steps(connection, options) if options.tenancy else [])


def settle(connection: Connection, options: SchemaOptions) -> tuple[Settings | None, SchemaOptions]:
    """Complete the options by what the database has, and refuse to differ from it."""
    namespace = locate(connection, options.schema)
    settings = None if namespace is None else _found(connection, namespace)
    if settings is not None:
        partitioned = settings.layout == "partitioned"
        options = options.settled(shards=settings.shard_count, partitioned=partitioned)
    if connection.dialect.name != "postgresql":
        return settings, options
    schema = options.schema or namespace or connection.scalar(text("SELECT current_schema()"))
    if schema is None:
        raise SetupError("the search path names no schema that exists; name one with --schema")
    return settings, replace(options, schema=schema)


def version_step(version: int, options: SchemaOptions, dialect: str) -> Step:
    """Return the frozen statements of a version."""
    text = script(version, options.choices(dialect))
    return Step(f"tables, version {version}", tuple(statements(text)))


def partition_steps(
    options: SchemaOptions, existing: Sequence[partitions.Partition], now: datetime | None = None
) -> list[Step]:
    """Return the partitions that are missing, as one step."""
    needed = _needed(options, existing, now)
    texts = [partitions.partition_sql(partition, options.schema) for partition in needed]
    if not texts:
        return []
    title = f"{len(needed)} partitions, until {needed[-1].end:%Y-%m-%d}"
    return [Step(title, tuple(statements("\n".join(texts))))]


def _found(connection: Connection, namespace: str) -> Settings | None:
    """Read the settings of an outbox that exists; refuse one that is not ours to change."""
    columns = read_catalog(connection, namespace).columns
    if "shard_hash" not in columns.get("outbox", {"shard_hash"}):
        problem = f"{namespace} holds a table named outbox that is not Pillarbox's"
        raise InvalidConfig("schema", problem, "name another one with --schema")
    if "outbox_settings" not in columns:
        return None
    schema = namespace if connection.dialect.name == "postgresql" else None
    settings = read_settings(connection, schema)
    if settings is not None and settings.schema_version > SCHEMA_VERSION:
        raise SchemaOutdated(settings.schema_version, SCHEMA_VERSION)
    return settings


def _schema_step(connection: Connection, options: SchemaOptions) -> list[Step]:
    """Make the schema only when it is missing: the statement needs rights on the database."""
    if connection.dialect.name != "postgresql":
        return []
    there = text("SELECT 1 FROM pg_namespace WHERE nspname = :schema")
    if connection.scalar(there, {"schema": options.schema}):
        return []
    create = f'CREATE SCHEMA IF NOT EXISTS "{options.schema}"'
    return [Step(f"schema {options.schema}", (create,))]


def _needed(
    options: SchemaOptions, existing: Sequence[partitions.Partition], now: datetime | None
) -> list[partitions.Partition]:
    moment = now or SYSTEM_CLOCK.now()
    needed = partitions.missing(existing, moment, ahead=options.ahead, days=options.partition_days)
    return list(needed)


def _tenancy_steps(connection: Connection, options: SchemaOptions) -> list[Step]:
    """Repeat the grants; leave policies that stand alone, because a change locks the table."""
    if connection.dialect.name != "postgresql":
        problem = "is set, and SQLite has no row-level security"
        raise InvalidConfig(
            "tenancy", problem, "leave it out; there the application alone keeps tenants apart"
        )
    steps = [Step("roles and grants", tuple(statements(grants_sql(options))))]
    catalog = read_catalog(connection, str(options.schema))
    if "outbox" not in catalog.columns or any(missing_walls(catalog)):
        steps.append(Step("row-level security", tuple(statements(policies_sql(options)))))
    return steps
