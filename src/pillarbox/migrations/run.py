"""Run the frozen SQL inside a user's own Alembic set-up."""

from collections.abc import Iterable, Iterator

from alembic import op
from alembic.config import Config
from sqlalchemy import Connection, func, inspect, select, text

from pillarbox.errors import InvalidConfig, SchemaInUse, SetupError
from pillarbox.migrations.frozen import Choices, downgrade_script, qualifier, statements
from pillarbox.outbox.schema.catalog import locate
from pillarbox.outbox.schema.options import SchemaOptions
from pillarbox.outbox.schema.policies import grants_sql, policies_sql
from pillarbox.outbox.schema.steps import partition_steps, settle, version_step
from pillarbox.outbox.tables import outbox

_TRUTH = {"true": True, "false": False}


def upgrade_to(version: int) -> None:
    """Bring the database to a version, with the options of the Alembic configuration."""
    context = op.get_context()
    options = options_of(context.config)
    if not context.as_sql:
        _, options = settle(op.get_bind(), options)
    if options.schema and (context.as_sql or not _has_schema(op.get_bind(), options.schema)):
        _execute([f'CREATE SCHEMA IF NOT EXISTS "{options.schema}"'])
    _execute(_upgrade(version, options, context.dialect.name))


def downgrade_to_nothing() -> None:
    """Drop everything, unless an event waits or stands FAILED or DEAD."""
    context = op.get_context()
    if context.as_sql:
        raise SetupError(
            "only the database knows whether events wait, so there is no offline downgrade; "
            "run it online"
        )
    connection, dialect = op.get_bind(), context.dialect.name
    namespace = locate(connection, options_of(context.config).schema)
    if namespace is None:
        return
    schema = namespace if dialect == "postgresql" else None
    refuse_to_lose(connection, schema)
    _execute(statements(downgrade_script(1, Choices(dialect=dialect, schema=schema))))


def options_of(config: Config | None) -> SchemaOptions:
    """Read the options from the main section of `alembic.ini`."""
    if config is None:
        return SchemaOptions()
    shards = config.get_main_option("pillarbox_shards")
    if shards is not None and not shards.isdecimal():
        raise InvalidConfig("pillarbox_shards", f"is {shards!r}", "write a number, as in 64")
    return SchemaOptions(
        schema=config.get_main_option("pillarbox_schema") or None,
        shards=None if shards is None else int(shards),
        partitioned=_truth(config, "pillarbox_partitioned"),
        tenancy=bool(_truth(config, "pillarbox_tenancy")),
    )


def refuse_to_lose(connection: Connection, schema: str | None) -> None:
    """Raise when an event was not sent; the lock taken here keeps new ones out."""
    if connection.dialect.name == "postgresql":
        # Under FORCE the owner sees no tenant's rows, and would drop what it cannot see.
        table = f"{qualifier(schema)}outbox"
        connection.exec_driver_sql(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY")
        connection.exec_driver_sql("SET LOCAL row_security = off")
    query = select(func.count()).where(outbox.c.status != "SENT")
    translated = {"schema_translate_map": {None: schema}}
    waiting = connection.scalar(query, execution_options=translated if schema else {})
    if waiting:
        raise SchemaInUse(waiting)


def _upgrade(version: int, options: SchemaOptions, dialect: str) -> Iterator[str]:
    yield from version_step(version, options, dialect).statements
    if options.partitioned:
        for step in partition_steps(options, []):
            yield from step.statements
    if options.tenancy:
        yield from statements(grants_sql(options))
        yield from statements(policies_sql(options))


def _execute(texts: Iterable[str]) -> None:
    for statement in texts:
        op.execute(text(statement.replace(":", r"\:")))


def _has_schema(connection: Connection, schema: str) -> bool:
    return schema in inspect(connection).get_schema_names()


def _truth(config: Config, name: str) -> bool | None:
    value = config.get_main_option(name)
    if value is None or value.lower() in _TRUTH:
        return None if value is None else _TRUTH[value.lower()]
    raise InvalidConfig(name, f"is {value!r}", "write true or false")
