"""Row-level security, tried as the roles themselves."""

from functools import partial
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, MetaData, func, insert, select, text
from sqlalchemy.dialects.postgresql import insert as pg_insert
from sqlalchemy.exc import DBAPIError, ProgrammingError
from sqlalchemy.orm import DeclarativeBase, Session

from pillarbox.errors import InvalidConfig, UnsafeRole
from pillarbox.schema import SchemaOptions, apply
from pillarbox.schema.policies import tenant_policies
from pillarbox.schema.start_up import start_up_check
from pillarbox.schema.tables import TENANT_TABLES, metadata, outbox
from tests.schema.rows import new_id, record
from tests.schema.wall import APP, SET_TENANT, acting, tenants, walled

__all__ = ["walled"]

strict = partial(start_up_check, tenancy=True, allow_unsafe_role=False)


# It says for whom a consumer must look, and holds nothing of theirs.
UNWALLED = {"consumer_tenant"}


def test_every_table_with_a_tenant_has_row_level_security_enabled_and_forced(
    walled: Engine,
) -> None:
    query = text(
        "SELECT c.relname, c.relrowsecurity AND c.relforcerowsecurity FROM pg_class c "
        "JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id' "
        "WHERE c.relkind IN ('r', 'p') AND c.relnamespace = 'public'::regnamespace"
    )

    with walled.connect() as connection:
        flags = {row[0]: row[1] for row in connection.execute(query)}

    assert {table.name for table in TENANT_TABLES} <= flags.keys()
    assert {name for name, walled_off in flags.items() if not walled_off} == UNWALLED


def test_tenant_tables_are_all_tables_that_have_a_tenant() -> None:
    having = {table.name for table in metadata.sorted_tables if "tenant_id" in table.c}

    assert {table.name for table in TENANT_TABLES} == having - UNWALLED


def test_every_policy_says_what_may_be_read_and_what_may_be_written(walled: Engine) -> None:
    query = text("SELECT count(*), count(polqual), count(polwithcheck) FROM pg_policy")

    with walled.connect() as connection:
        assert connection.execute(query).one() == (25, 25, 25)


@pytest.mark.parametrize("tenant", [None, ""])
def test_without_a_tenant_nothing_is_read_and_nothing_is_written(
    walled: Engine, tenant: str | None
) -> None:
    with acting(walled, APP, tenant) as connection:
        assert tenants(connection) == []
        with pytest.raises(ProgrammingError, match="row-level security"):
            record(connection, 3, tenant_id="acme")


def test_after_a_transaction_with_a_tenant_the_next_one_has_none(walled: Engine) -> None:
    with walled.connect() as connection:
        for tenant, seen in (("acme", ["acme"]), (None, [])):
            with connection.begin():
                connection.exec_driver_sql(f"SET LOCAL ROLE {APP}")
                if tenant:
                    connection.execute(SET_TENANT, {"tenant": tenant})

                assert tenants(connection) == seen


class Base(DeclarativeBase):
    metadata = MetaData()


class Row(Base):
    __table__ = outbox.to_metadata(Base.metadata)


def probe_core(connection: Connection) -> list[str]:
    return list(connection.scalars(select(outbox.c.tenant_id)))


def probe_text(connection: Connection) -> list[str]:
    return list(connection.scalars(text("SELECT tenant_id FROM outbox WHERE tenant_id = 'globex'")))


def probe_view(connection: Connection) -> list[str]:
    return list(connection.scalars(text("SELECT tenant_id FROM outbox_live")))


def probe_orm(connection: Connection) -> list[str]:
    with Session(connection) as session:
        return list(session.scalars(select(Row.__table__.c.tenant_id)))


def probe_returning(connection: Connection) -> list[str]:
    values = {"id": new_id(), "tenant_id": "acme", "occurred_at": func.now(), "shard_hash": 1}
    row = values | {"event_type": "T", "topic": "t", "key": "k"}
    return list(connection.scalars(insert(outbox).values(**row).returning(outbox.c.tenant_id)))


def probe_exists(connection: Connection) -> list[str]:
    foreign = text("SELECT 'globex' WHERE EXISTS (SELECT FROM outbox WHERE seq = 2)")
    return list(connection.scalars(foreign))


PROBES = (probe_core, probe_text, probe_view, probe_orm, probe_returning, probe_exists)


def test_no_route_leads_to_a_foreign_row(walled: Engine) -> None:
    with acting(walled, APP, "acme") as connection:
        for probe in PROBES:
            assert "globex" not in probe(connection), probe


def test_a_row_of_another_tenant_cannot_be_written(walled: Engine) -> None:
    with (
        acting(walled, APP, "acme") as connection,
        pytest.raises(ProgrammingError, match="row-level security"),
    ):
        record(connection, 3, tenant_id="globex")


def test_squatting_on_another_tenants_id_has_no_effect_and_no_other_answer(walled: Engine) -> None:
    with walled.begin() as connection:
        taken = record(connection, 3, tenant_id="globex")
    answers = []

    for event_id in (taken, new_id()):
        with acting(walled, APP, "acme") as connection:
            values = {"id": event_id, "tenant_id": "acme", "occurred_at": func.now()}
            row = values | {"shard_hash": 1, "event_type": "T", "topic": "t", "key": "k"}
            add = pg_insert(outbox).values(**row).on_conflict_do_nothing()
            answers.append(len(connection.execute(add.returning(outbox.c.seq)).all()))

    assert answers == [1, 1]


def test_all_unique_keys_of_tenant_tables_start_with_the_tenant(walled: Engine) -> None:
    query = text(
        "SELECT c.relname, a.attname FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid "
        "JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0] "
        "WHERE i.indisunique AND c.relnamespace = 'public'::regnamespace AND EXISTS ("
        "SELECT FROM pg_attribute t WHERE t.attrelid = c.oid AND t.attname = 'tenant_id')"
    )

    with walled.connect() as connection:
        first = connection.execute(query).all()

    assert len(first) >= len(TENANT_TABLES)
    assert {column for _, column in first} == {"tenant_id"}


def test_views_use_the_rights_of_their_reader_and_no_function_those_of_its_owner(
    walled: Engine,
) -> None:
    views = text(
        "SELECT relname FROM pg_class WHERE relkind = 'v' "
        "AND relnamespace = 'public'::regnamespace "
        "AND NOT 'security_invoker=true' = ANY (coalesce(reloptions, '{}'))"
    )
    functions = text(
        "SELECT proname FROM pg_proc WHERE prosecdef AND pronamespace = 'public'::regnamespace"
    )

    with walled.connect() as connection:
        assert connection.execute(views).all() == []
        assert connection.execute(functions).all() == []


def test_start_up_accepts_the_application_role(walled: Engine) -> None:
    with acting(walled, APP) as connection:
        warnings = strict(connection)

        assert [line for line in warnings if "partitions" not in line] == []


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        ("ALTER ROLE {} SUPERUSER", "is a superuser"),
        ("ALTER ROLE {} BYPASSRLS", "has BYPASSRLS"),
        ("ALTER TABLE outbox OWNER TO {}", "owns the outbox tables"),
        ("GRANT pillarbox_projector TO {}", "is a member of the projector's role"),
    ],
)
def test_start_up_refuses_a_role_that_sees_through_the_wall(
    engine: Engine, make: str, reason: str
) -> None:
    apply(engine, SchemaOptions(tenancy=True))
    with engine.connect() as connection:
        connection.exec_driver_sql("CREATE ROLE schema_risky IN ROLE pillarbox_app")
        connection.exec_driver_sql(make.format("schema_risky"))
        connection.exec_driver_sql("SET LOCAL ROLE schema_risky")

        with pytest.raises(UnsafeRole, match=reason):
            strict(connection)
        allowed = start_up_check(connection, tenancy=True, allow_unsafe_role=True)
        without = start_up_check(connection, tenancy=False, allow_unsafe_role=False)

        assert reason in allowed[0]
        assert reason in without[0]
        connection.rollback()


def test_a_users_own_table_gets_the_same_wall(engine: Engine) -> None:
    apply(engine, SchemaOptions(tenancy=True))
    with engine.connect() as connection:
        connection.exec_driver_sql('CREATE TABLE "order" (tenant_id uuid, n int)')
        connection.exec_driver_sql(f'GRANT SELECT, INSERT ON "order" TO {APP}')
        for statement in tenant_policies("order", column_type="uuid", projector_role=None):
            connection.exec_driver_sql(statement)
        mine, other = new_id(), new_id()
        connection.exec_driver_sql(f"SET LOCAL ROLE {APP}")
        connection.execute(SET_TENANT, {"tenant": str(mine)})
        add = text('INSERT INTO "order" VALUES (:tenant, 1)')
        connection.execute(add, {"tenant": mine})
        connection.execute(SET_TENANT, {"tenant": str(other)})

        assert connection.exec_driver_sql('SELECT * FROM "order"').all() == []
        with pytest.raises(DBAPIError, match="row-level security"):
            connection.execute(add, {"tenant": mine})


@pytest.mark.parametrize(
    "arguments",
    [
        {"table": "orders; DROP TABLE x"},
        {"table": "orders", "column": 'a"b'},
        {"table": "orders", "schema": "A"},
        {"table": "orders", "setting": "app.tenant', true)"},
        {"table": "orders", "projector_role": "a b"},
        {"table": "orders", "application_role": "a-b"},
        {"table": "orders", "column_type": "text) OR (true"},
    ],
)
def test_a_name_with_more_in_it_than_a_name_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig):
        tenant_policies(**arguments)


def test_policies_can_be_applied_again(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE orders (tenant_id text)")
        for _ in range(2):
            for statement in tenant_policies("orders", projector_role=None):
                connection.exec_driver_sql(statement)
