"""Run the frozen SQL inside a user's own Alembic set-up."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from alembic import op
from alembic.config import Config
from sqlalchemy import ColumnElement, Connection, Table, func, inspect, select, text, true

from pillarbox.errors import InvalidConfig, SchemaInUse, SetupError
from pillarbox.migrations.frozen import VERSIONS, Choices, downgrade_script, qualifier, statements
from pillarbox.schema.catalog import locate
from pillarbox.schema.options import SchemaOptions
from pillarbox.schema.policies import grants_sql, policies_sql
from pillarbox.schema.steps import partition_steps, settle, version_step
from pillarbox.schema.tables import inbox_parked, inbox_task, outbox, saga

_GIVEN: Final = ("schema", "shards", "partitioned", "tenancy")
_TRUTH = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Precious:
    """Rows that exist nowhere else, with the words for them and the way to be rid of them."""

    table: Table
    what: str
    remedy: str
    where: ColumnElement[bool] = field(default_factory=true)


_PRECIOUS: Final = {
    1: (
        Precious(
            outbox,
            "events in the outbox are not SENT",
            "let the projector drain it, discard the rest",
            outbox.c.status != "SENT",
        ),
    ),
    2: (
        Precious(inbox_parked, "messages are parked", "redrive or discard them"),
        Precious(inbox_task, "tasks are not done", "let the consumers do them"),
    ),
    3: (  # a read model can be built again
        Precious(
            saga,
            "sagas have not ended",
            "let them run to their ends, or cancel them",
            saga.c.finished_at.is_(None),
        ),
    ),
}


def upgrade_to(version: int, **given: Any) -> None:
    """Bring the database to a version; options that are not given are the configuration's."""
    context = op.get_context()
    options = _completed(options_of(context.config), given)
    if not context.as_sql:
        _, options = settle(op.get_bind(), options)
    if options.schema and (context.as_sql or not _has_schema(op.get_bind(), options.schema)):
        _execute([f'CREATE SCHEMA IF NOT EXISTS "{options.schema}"'])
    _execute(_upgrade(version, options, context.dialect.name))


def upgrade_through(first: int, last: int, **given: Any) -> None:
    """Bring the database from the version before the first to the last."""
    if last not in VERSIONS:
        problem = f"is {last}, and this Pillarbox knows {VERSIONS[0]} to {VERSIONS[-1]}"
        raise InvalidConfig("version", problem, "write a number of these, or upgrade pillarbox")
    for version in range(first, last + 1):
        upgrade_to(version, **given)


def downgrade_from(version: int, **given: Any) -> None:
    """Take a version away, unless that would lose what no broker has any more."""
    context = op.get_context()
    if context.as_sql:
        raise SetupError(
            "only the database knows whether something waits in it, so there is no offline downgrade; "
            "run it online"
        )
    connection, dialect = op.get_bind(), context.dialect.name
    options = _completed(options_of(context.config), given)
    namespace = locate(connection, options.schema)
    if namespace is None:
        return
    schema = namespace if dialect == "postgresql" else None
    refuse_to_lose(connection, schema, _PRECIOUS[version])
    _execute(statements(downgrade_script(version, Choices(dialect=dialect, schema=schema))))


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


def _completed(options: SchemaOptions, given: Mapping[str, Any]) -> SchemaOptions:
    unknown = sorted(given.keys() - _GIVEN)
    if unknown:
        problem = f"has no option {unknown[0]!r}"
        raise InvalidConfig("the directive", problem, f"name some of {', '.join(_GIVEN)}")
    return replace(options, **given)


def refuse_to_lose(
    connection: Connection, schema: str | None, precious: Iterable[Precious]
) -> None:
    """Raise when a row is still needed; the lock taken here keeps new ones out."""
    for kept in precious:
        waiting = _count(connection, schema, kept)
        if waiting:
            raise SchemaInUse(waiting, kept.what, kept.remedy)


def _count(connection: Connection, schema: str | None, kept: Precious) -> int:
    if connection.dialect.name == "postgresql":
        # Under FORCE the owner sees no tenant's rows, and would drop what it cannot see.
        table = f"{qualifier(schema)}{kept.table.name}"
        connection.exec_driver_sql(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY")
        connection.exec_driver_sql("SET LOCAL row_security = off")
    query = select(func.count()).select_from(kept.table).where(kept.where)
    translated = {"schema_translate_map": {None: schema}} if schema else {}
    return connection.scalar(query, execution_options=translated) or 0


def _upgrade(version: int, options: SchemaOptions, dialect: str) -> Iterator[str]:
    yield from version_step(version, options, dialect).statements
    if options.partitioned and version == VERSIONS[0]:
        for step in partition_steps(options, []):
            yield from step.statements
    # Grants and policies name the tables of every version; until then nobody has rights on any.
    if options.tenancy and version == VERSIONS[-1]:
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
