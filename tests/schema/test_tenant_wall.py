"""Row-level security, roles and grants, tried as the roles themselves."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, MetaData, func, insert, select, text, update
from sqlalchemy.dialects.postgresql import insert as pg_insert
from sqlalchemy.exc import DBAPIError, ProgrammingError
from sqlalchemy.orm import DeclarativeBase, Session

from pillarbox.errors import InvalidConfig, UnsafeRole
from pillarbox.outbox.schema import SchemaOptions, apply, check
from pillarbox.outbox.schema.partitions import DAY
from pillarbox.outbox.schema.policies import tenant_policies
from pillarbox.outbox.schema.start_up import start_up_check
from pillarbox.outbox.tables import TENANT_TABLES, metadata, outbox
from tests.schema.rows import claim, lease, new_id, record

APP, PROJECTOR = "pillarbox_app", "pillarbox_projector"
strict = partial(start_up_check, tenancy=True, allow_unsafe_role=False)
SET_TENANT = text("SELECT set_config('app.tenant', :tenant, true)")
GRANTS = text(
    "SELECT c.relname, a.privilege_type FROM pg_class c, aclexplode(c.relacl) a "
    "WHERE c.relname ~ '^outbox' AND a.grantee = to_regrole(:role) ORDER BY 1, 2"
)


@pytest.fixture(params=[False, True], ids=["plain", "partitioned"])
def walled(request: pytest.FixtureRequest, engine: Engine) -> Engine:
    """A database with tenancy, and one event each of two tenants."""
    apply(engine, SchemaOptions(tenancy=True, partitioned=request.param, ahead=DAY))
    with engine.begin() as connection:
        record(connection, 1, tenant_id="acme")
        record(connection, 2, tenant_id="globex")
    return engine


@contextmanager
def acting(engine: Engine, role: str, tenant: str | None = None) -> Iterator[Connection]:
    """Open a transaction as a role, for a tenant; it is rolled back."""
    with engine.connect() as connection:
        connection.exec_driver_sql(f"SET LOCAL ROLE {role}")
        if tenant is not None:
            connection.execute(SET_TENANT, {"tenant": tenant})
        yield connection
        connection.rollback()


def tenants(connection: Connection) -> list[str]:
    return sorted(connection.scalars(text("SELECT tenant_id FROM outbox")))


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
    assert all(flags.values()), flags


def test_tenant_tables_are_all_tables_that_have_a_tenant() -> None:
    having = {table.name for table in metadata.sorted_tables if "tenant_id" in table.c}

    assert {table.name for table in TENANT_TABLES} == having


def test_every_policy_says_what_may_be_read_and_what_may_be_written(walled: Engine) -> None:
    query = text("SELECT count(*), count(polqual), count(polwithcheck) FROM pg_policy")

    with walled.connect() as connection:
        assert connection.execute(query).one() == (8, 8, 8)


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


def test_the_grants_are_these_and_no_others(walled: Engine) -> None:
    granted: dict[str, dict[str, str]] = {APP: {}, PROJECTOR: {}}

    with walled.connect() as connection:
        for role, tables in granted.items():
            for table, privilege in connection.execute(GRANTS, {"role": role}):
                tables[table] = f"{tables.get(table, '')} {privilege}".strip()

    own = "DELETE INSERT SELECT UPDATE"
    assert granted[APP] == {
        "outbox": "INSERT SELECT",
        "outbox_claim": "SELECT",
        "outbox_claim_end": "SELECT",
        "outbox_lease": "SELECT",
        "outbox_live": "SELECT",
        "outbox_seq": "USAGE",
        "outbox_settings": "SELECT",
    }
    assert granted[PROJECTOR] == {
        "outbox": "DELETE SELECT UPDATE",
        "outbox_audit": "INSERT SELECT",
        "outbox_blocked_key": own,
        "outbox_claim": own,
        "outbox_claim_end": own,
        "outbox_control": own,
        "outbox_lease": own,
        "outbox_live": "SELECT",
        "outbox_member": own,
        "outbox_seq": "SELECT",
        "outbox_settings": "SELECT",
    }


ATTEMPTS = (
    "UPDATE outbox SET status = 'SENT'",
    "DELETE FROM outbox",
    "TRUNCATE outbox",
    "SELECT 1 FROM outbox FOR UPDATE",
    "CREATE TABLE loot AS SELECT 1",
    "ALTER TABLE outbox DISABLE ROW LEVEL SECURITY",
    "ALTER TABLE outbox NO FORCE ROW LEVEL SECURITY",
    "DROP POLICY pillarbox_tenant ON outbox",
    "CREATE POLICY mine ON outbox USING (true)",
    "SELECT 1 FROM outbox_audit",
    "SELECT 1 FROM outbox_blocked_key",
    "SELECT setval('outbox_seq', 1)",
    "UPDATE outbox_settings SET shard_count = 1",
    "INSERT INTO outbox_claim_end (claim_id) VALUES (gen_random_uuid())",
)


def test_the_application_is_refused_everything_else(walled: Engine) -> None:
    with acting(walled, APP, "acme") as connection:
        for attempt in ATTEMPTS:
            with (
                pytest.raises(ProgrammingError, match=r"permission denied|must be owner"),
                connection.begin_nested(),
            ):
                connection.exec_driver_sql(attempt)


def test_the_application_cannot_become_the_projector(walled: Engine) -> None:
    with acting(walled, APP, "acme") as connection:
        member = text("SELECT pg_has_role(:role, 'MEMBER')")

        assert connection.scalar(member, {"role": PROJECTOR}) is False


def test_the_direct_way_into_a_partition_is_shut_even_with_default_privileges(
    engine: Engine,
) -> None:
    apply(engine, SchemaOptions(tenancy=True, partitioned=True, ahead=DAY))
    with engine.begin() as connection:
        record(connection, 1, tenant_id="globex")
        partition = connection.scalar(text("SELECT tableoid::regclass::text FROM outbox"))
        connection.exec_driver_sql(f"GRANT ALL ON {partition} TO {APP}")

    with acting(engine, APP, "globex") as connection:
        assert tenants(connection) == ["globex"]
        assert connection.exec_driver_sql(f"SELECT 1 FROM {partition}").all() == []


def test_the_projector_serves_every_tenant_and_records_no_event(walled: Engine) -> None:
    with acting(walled, PROJECTOR) as connection:
        assert tenants(connection) == ["acme", "globex"]
        settled = connection.execute(update(outbox).values(status="SENT"))
        assert settled.rowcount == 2
        lease(connection)
        claim(connection, [1, 2], ended=True)
        with pytest.raises(ProgrammingError, match="permission denied"):
            record(connection, 3, tenant_id="acme")


def test_the_roles_are_neither_superusers_nor_owners_nor_exempt(walled: Engine) -> None:
    query = text(
        "SELECT rolname FROM pg_roles WHERE rolname ~ '^pillarbox_' AND (rolsuper OR rolbypassrls "
        "OR rolcanlogin OR rolcreaterole OR has_schema_privilege(rolname, 'public', 'CREATE'))"
    )

    with walled.connect() as connection:
        assert connection.execute(query).all() == []


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


def test_names_of_roles_can_be_chosen(engine: Engine) -> None:
    options = SchemaOptions(
        schema="shop", tenancy=True, application_role="order", projector_role="user"
    )
    with engine.connect() as connection:
        apply(connection, options)

        assert check(connection, options) == []
        connection.rollback()


def test_policies_can_be_applied_again(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE orders (tenant_id text)")
        for _ in range(2):
            for statement in tenant_policies("orders", projector_role=None):
                connection.exec_driver_sql(statement)
