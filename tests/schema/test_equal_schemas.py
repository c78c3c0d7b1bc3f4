"""The tables as metadata and the tables as migrations are the same tables."""

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, Engine, MetaData, create_engine, text

from pillarbox.migrations.autogenerate import include_name
from pillarbox.schema import SchemaOptions, apply, check
from pillarbox.schema.tables import attach, metadata

INDEXES = text(
    "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = :schema "
    "AND indexname !~ '_p[0-9]{8}' ORDER BY indexname"
)
COLUMNS = text(
    "SELECT c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, "
    "l.collname, pg_get_expr(d.adbin, d.adrelid) FROM pg_class c "
    "JOIN pg_attribute a ON a.attrelid = c.oid "
    "LEFT JOIN pg_collation l ON l.oid = a.attcollation "
    "LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum "
    "WHERE c.relnamespace = to_regnamespace(:schema) AND c.relkind IN ('r', 'p') "
    "AND NOT c.relispartition AND a.attnum > 0 ORDER BY 1, 2"
)
CONSTRAINTS = text(
    "SELECT c.relname, k.conname, pg_get_constraintdef(k.oid) FROM pg_constraint k "
    "JOIN pg_class c ON c.oid = k.conrelid WHERE c.relnamespace = to_regnamespace(:schema) "
    "AND NOT c.relispartition ORDER BY 1, 2"
)

# What SQLAlchemy cannot reflect is compared by its text below.
QUIET = pytest.mark.filterwarnings(
    "ignore:Did not recognize type 'xid8'",
    "ignore:Skipped unsupported reflection of expression-based index",
    "ignore:autogenerate skipping metadata-specified expression-based index",
)


def differences(connection: Connection, target: MetaData, **options: Any) -> list[Any]:
    configured = {
        "compare_type": True,
        "include_name": include_name(attached=True),
        **options,
    }
    context = MigrationContext.configure(connection, opts=configured)
    return list(compare_metadata(context, target))


def described(connection: Connection, schema: str) -> dict[str, list[tuple[Any, ...]]]:
    parts = {"indexes": INDEXES, "columns": COLUMNS, "constraints": CONSTRAINTS}
    return {
        name: [
            tuple(str(value).replace(f"{schema}.", "") for value in row)
            for row in connection.execute(query, {"schema": schema})
        ]
        for name, query in parts.items()
    }


@QUIET
def test_alembic_finds_no_difference_between_metadata_and_migrations(any_engine: Engine) -> None:
    apply(any_engine)

    with any_engine.connect() as connection:
        assert differences(connection, metadata) == []


@QUIET
def test_alembic_finds_no_difference_in_a_partitioned_schema_of_another_name(
    engine: Engine,
) -> None:
    apply(engine, SchemaOptions(schema="shop", partitioned=True))

    with engine.connect() as connection:
        target = attach(MetaData(), schema="shop")
        assert differences(connection, target, include_schemas=True) == []


@pytest.mark.parametrize("partitioned", [False, True])
def test_every_definition_equals_what_create_all_makes(engine: Engine, partitioned: bool) -> None:
    apply(engine, SchemaOptions(schema="migrated", partitioned=partitioned))

    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE SCHEMA attached")
        attach(MetaData(), schema="attached").create_all(connection)
        migrated, attached = described(connection, "migrated"), described(connection, "attached")

    assert {name: len(rows) > 10 for name, rows in migrated.items()} == dict.fromkeys(
        migrated, True
    )
    if partitioned:  # the word ONLY is how PostgreSQL prints the index of a partitioned table
        rows = migrated["indexes"]
        migrated["indexes"] = [(name, text.replace("ON ONLY ", "ON ")) for name, text in rows]
    assert migrated == attached


def test_sqlite_has_the_definitions_that_create_all_makes() -> None:
    migrated, attached = create_engine("sqlite://"), create_engine("sqlite://")
    apply(migrated)
    metadata.create_all(attached)

    assert sqlite_shape(migrated) == sqlite_shape(attached)
    migrated.dispose()
    attached.dispose()


def sqlite_shape(engine: Engine) -> tuple[list[Any], list[Any]]:
    with engine.connect() as connection:
        columns = connection.exec_driver_sql(
            'SELECT m.name, p.cid, p.name, p.type, p."notnull", p.pk, '
            "nullif(trim(p.dflt_value, ''''), 'NULL') "
            "FROM sqlite_master m JOIN pragma_table_info(m.name) p WHERE m.type = 'table' "
            "ORDER BY 1, 2"
        ).all()
        indexes = connection.exec_driver_sql(
            "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL "
            "ORDER BY name"
        ).all()
    bare = [(name, re.sub(r"IF NOT EXISTS |\s+", " ", sql).split()) for name, sql in indexes]
    return [tuple(column) for column in columns], bare


def test_applying_twice_changes_nothing(any_engine: Engine) -> None:
    apply(any_engine)

    apply(any_engine)

    with any_engine.connect() as connection:
        assert check(connection) == []


def test_applying_after_create_all_completes_the_schema(any_engine: Engine) -> None:
    metadata.create_all(any_engine)

    apply(any_engine)

    with any_engine.connect() as connection:
        assert check(connection) == []


def test_two_processes_may_apply_at_the_same_time(engine: Engine) -> None:
    with ThreadPoolExecutor(4) as threads:
        runs = [threads.submit(apply, engine, SchemaOptions(tenancy=True)) for _ in range(4)]

    assert [run.exception() for run in runs] == [None] * 4


def test_txid_is_drawn_before_seq(engine: Engine) -> None:
    apply(engine)

    with engine.connect() as connection:
        columns = connection.scalars(
            text(
                "SELECT attname FROM pg_attribute WHERE attrelid = 'outbox'::regclass "
                "AND attname IN ('txid', 'seq') ORDER BY attnum"
            )
        )
        assert list(columns) == ["txid", "seq"]
