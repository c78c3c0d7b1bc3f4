"""Drift is found, named and mended; a process with the wrong database does not start."""

from datetime import UTC, datetime
from functools import partial

import pytest
from sqlalchemy import Connection, Engine, create_engine, text

from pillarbox.errors import (
    GrantsMissing,
    InvalidConfig,
    PartitionsMissing,
    RowSecurityMissing,
    SchemaMissing,
    SchemaOutdated,
)
from pillarbox.schema import SchemaOptions, apply, check, schema_sql
from pillarbox.schema.partitions import DAY
from pillarbox.schema.start_up import start_up_check
from pillarbox.schema.tables import metadata

NOW = datetime(2026, 11, 15, 13, 30, tzinfo=UTC)
strict = partial(start_up_check, tenancy=True, allow_unsafe_role=False)
lax = partial(start_up_check, tenancy=False, allow_unsafe_role=False)


def codes(connection: Connection, options: SchemaOptions | None = None) -> list[tuple[str, str]]:
    return [(finding.code, finding.subject) for finding in check(connection, options, now=NOW)]


def test_an_empty_database_lacks_the_schema(any_engine: Engine) -> None:
    with any_engine.connect() as connection:
        assert codes(connection) == [("schema-missing", "outbox")]


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ("DROP TABLE outbox_control", ("table-missing", "outbox_control")),
        ("DROP TABLE inbox_attempt", ("table-missing", "inbox_attempt")),
        ("DROP INDEX ix_outbox_due", ("index-missing", "ix_outbox_due")),
        ("DROP INDEX ix_inbox_processed_at", ("index-missing", "ix_inbox_processed_at")),
        ("DROP VIEW outbox_live", ("view-missing", "outbox_live")),
        ("DELETE FROM outbox_settings", ("settings-missing", "outbox_settings")),
    ],
)
def test_what_is_missing_is_found_and_mended_by_applying(
    any_engine: Engine, damage: str, found: tuple[str, str]
) -> None:
    apply(any_engine)
    with any_engine.begin() as connection:
        connection.exec_driver_sql(damage)

        assert codes(connection) == [found]

    apply(any_engine)

    with any_engine.connect() as connection:
        assert codes(connection) == []


DAMAGES = {
    "ALTER TABLE outbox_member DROP COLUMN host": ("column-missing", "outbox_member.host"),
    "ALTER TABLE outbox DROP CONSTRAINT ck_outbox_status": (
        "constraint-missing",
        "outbox.ck_outbox_status",
    ),
    "DROP SEQUENCE inbox_parked_seq CASCADE": ("sequence-missing", "inbox_parked_seq"),
    "ALTER TABLE inbox_parked DROP CONSTRAINT ck_inbox_parked_state": (
        "constraint-missing",
        "inbox_parked.ck_inbox_parked_state",
    ),
    "ALTER TABLE pillarbox_audit DROP CONSTRAINT pillarbox_audit_pkey, ADD PRIMARY KEY (audit_id)": (
        "key-differs",
        "pillarbox_audit",
    ),
    "ALTER VIEW outbox_live SET (security_invoker = false)": ("view-unsafe", "outbox_live"),
    "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'ix_outbox_due'::regclass": (
        "index-invalid",
        "ix_outbox_due",
    ),
    "UPDATE outbox_settings SET shard_count = 32": ("index-differs", "ix_outbox_claim"),
    "UPDATE outbox_settings SET schema_version = 1": ("schema-outdated", "outbox_settings"),
}


def test_damage_is_found(engine: Engine) -> None:
    apply(engine)

    with engine.connect() as connection:
        for damage, found in DAMAGES.items():
            connection.exec_driver_sql(damage)

            assert codes(connection) == [found]
            connection.rollback()


def test_other_settings_than_expected_are_found(engine: Engine) -> None:
    apply(engine)

    with engine.connect() as connection:
        found = codes(connection, SchemaOptions(shards=32, partitioned=True, tenancy=True))

    assert found == [
        ("shards-differ", "outbox_settings"),
        ("layout-differs", "outbox_settings"),
        ("wall-missing", "idempotency"),
        ("wall-missing", "inbox"),
        ("wall-missing", "inbox_applied"),
        ("wall-missing", "inbox_attempt"),
        ("wall-missing", "inbox_parked"),
        ("wall-missing", "inbox_task"),
        ("wall-missing", "outbox"),
        ("wall-missing", "outbox_blocked_key"),
        ("wall-missing", "outbox_control"),
        ("wall-missing", "pillarbox_audit"),
        ("wall-missing", "readmodel_applied"),
        ("wall-missing", "readmodel_held"),
        ("wall-missing", "saga"),
        ("wall-missing", "saga_step"),
        ("wall-missing", "saga_stray"),
    ]


def test_partitions_that_run_out_are_found(engine: Engine) -> None:
    apply(engine, SchemaOptions(partitioned=True, ahead=3 * DAY), now=NOW)

    with engine.connect() as connection:
        assert codes(connection) == [("partitions-missing", "outbox")]


def test_an_index_for_another_number_of_shards_is_named_with_the_remedy(engine: Engine) -> None:
    apply(engine)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE outbox_settings SET shard_count = 16")

    with engine.connect() as connection:
        finding = check(connection)[0]

    assert str(finding) == (
        "ix_outbox_claim: the index is not built for 16 shards; "
        "`DROP INDEX ix_outbox_claim`, then run `pillarbox schema apply`"
    )


@pytest.mark.parametrize("shards", [-64, 0, 3, 63, 2048])
def test_a_number_of_shards_that_cannot_work_is_refused(shards: int) -> None:
    with pytest.raises(InvalidConfig, match="power of two from 1 to 1024"):
        SchemaOptions(shards=shards)


@pytest.mark.parametrize("name", ['out"box;--', "a" * 64, "Shop", "a.b", "1st", "", "a\x00b"])
def test_a_name_that_is_no_identifier_is_refused(name: str) -> None:
    for setting in ("schema", "application_role", "projector_role"):
        with pytest.raises(InvalidConfig, match=setting):
            SchemaOptions(**{setting: name})  # type: ignore[arg-type] # the names are str settings


def test_sqlite_refuses_what_it_does_not_have() -> None:
    engine = create_engine("sqlite://")

    for options in ({"partitioned": True}, {"schema": "shop"}, {"tenancy": True}):
        with pytest.raises(InvalidConfig):
            apply(engine, SchemaOptions(**options))
    engine.dispose()


def test_shards_and_layout_are_for_life(engine: Engine) -> None:
    apply(engine)

    with pytest.raises(InvalidConfig, match="created with 64"):
        apply(engine, SchemaOptions(shards=32))
    with pytest.raises(InvalidConfig, match="another layout"):
        apply(engine, SchemaOptions(partitioned=True))


def test_a_strangers_outbox_table_is_left_alone(any_engine: Engine) -> None:
    with any_engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE outbox (id integer)")

    with pytest.raises(InvalidConfig, match="not Pillarbox's"):
        apply(any_engine)


def test_a_schema_newer_than_the_code_is_left_alone(any_engine: Engine) -> None:
    apply(any_engine)
    with any_engine.begin() as connection:
        connection.exec_driver_sql("UPDATE outbox_settings SET schema_version = 9")

    with pytest.raises(SchemaOutdated, match=r"schema is at 9.*upgrade pillarbox"):
        apply(any_engine)


def test_the_printed_sql_makes_the_same_schema_twice(engine: Engine) -> None:
    options = SchemaOptions(schema="shop", partitioned=True, tenancy=True)
    printed = schema_sql(options, now=NOW)
    with engine.connect() as connection:
        for _ in range(2):
            connection.exec_driver_sql(printed, execution_options={"no_parameters": True})
            connection.commit()

        assert check(connection, options, now=NOW) == []
    assert printed == schema_sql(options, now=NOW)


def test_start_up_needs_the_schema_of_this_version(any_engine: Engine) -> None:
    with any_engine.begin() as connection:
        with pytest.raises(SchemaMissing, match="pillarbox schema apply"):
            lax(connection)

        metadata.create_all(connection)
        assert len(lax(connection)) <= 1  # the role of the tests is a superuser

        connection.exec_driver_sql("DELETE FROM outbox_settings")
        with pytest.raises(SchemaOutdated, match="schema is at 0"):
            lax(connection)

        apply(connection)
        assert len(lax(connection)) <= 1  # the role of the tests is a superuser

        connection.exec_driver_sql("UPDATE outbox_settings SET schema_version = 1")
        with pytest.raises(SchemaOutdated, match="schema is at 1"):
            lax(connection)


def test_start_up_refuses_other_shard_settings(any_engine: Engine) -> None:
    apply(any_engine)

    with any_engine.begin() as connection:
        lax(connection, shards=64)
        with pytest.raises(InvalidConfig, match="shard_count is 64, expected 32"):
            lax(connection, shards=32)

        connection.exec_driver_sql("UPDATE outbox_settings SET shard_hash = 'crc'")
        with pytest.raises(InvalidConfig, match="shard_hash is crc"):
            lax(connection)


def test_start_up_warns_before_partitions_run_out_and_refuses_after(engine: Engine) -> None:
    apply(engine, SchemaOptions(partitioned=True), now=NOW)

    with engine.connect() as connection:
        assert len(lax(connection, now=NOW)) == 1  # the superuser's warning
        warning = lax(connection, now=NOW + 10 * DAY)[0]
        assert warning.startswith("partitions run out in 4.4 days")
        with pytest.raises(PartitionsMissing):
            lax(connection, now=NOW + 30 * DAY)


def test_start_up_names_missing_grants(engine: Engine) -> None:
    apply(engine, SchemaOptions(tenancy=True))

    with engine.begin() as connection:
        connection.exec_driver_sql("REVOKE SELECT ON outbox_settings FROM pillarbox_app")
        connection.exec_driver_sql("SET LOCAL ROLE pillarbox_app")
        with pytest.raises(GrantsMissing, match="pillarbox_app may not read"):
            strict(connection)


def test_start_up_with_tenancy_refuses_tables_without_row_level_security(engine: Engine) -> None:
    apply(engine, SchemaOptions(tenancy=True))

    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE outbox NO FORCE ROW LEVEL SECURITY"))
        connection.exec_driver_sql("SET LOCAL ROLE pillarbox_app")
        with pytest.raises(RowSecurityMissing, match="does not guard outbox,"):
            strict(connection)
