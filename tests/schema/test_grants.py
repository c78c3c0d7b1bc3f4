"""What the roles of application and projector may do, and that they may no more."""

import pytest
from sqlalchemy import Engine, text, update
from sqlalchemy.exc import ProgrammingError

from pillarbox.schema import SchemaOptions, apply, check
from pillarbox.schema.partitions import DAY
from pillarbox.schema.tables import outbox
from tests.schema.rows import claim, lease, record
from tests.schema.wall import APP, PROJECTOR, acting, tenants, walled

__all__ = ["walled"]

GRANTS = text(
    "SELECT c.relname, a.privilege_type FROM pg_class c, aclexplode(c.relacl) a "
    "WHERE a.grantee = to_regrole(:role) ORDER BY 1, 2"
)


def test_the_grants_are_these_and_no_others(walled: Engine) -> None:
    granted: dict[str, dict[str, str]] = {APP: {}, PROJECTOR: {}}

    with walled.connect() as connection:
        for role, tables in granted.items():
            for table, privilege in connection.execute(GRANTS, {"role": role}):
                tables[table] = f"{tables.get(table, '')} {privilege}".strip()

    own = "DELETE INSERT SELECT UPDATE"
    assert granted[APP] == {
        "consumer_tenant": own,
        "idempotency": own,
        "inbox": own,
        "inbox_applied": own,
        "inbox_attempt": own,
        "inbox_parked": own,
        "inbox_parked_seq": "USAGE",
        "inbox_task": own,
        "outbox": "INSERT SELECT",
        "outbox_claim": "SELECT",
        "outbox_claim_end": "SELECT",
        "outbox_lease": "SELECT",
        "outbox_live": "SELECT",
        "outbox_seq": "USAGE",
        "outbox_settings": "SELECT",
        "readmodel": own,
        "readmodel_applied": own,
        "readmodel_held": own,
        "readmodel_member": own,
        "saga": own,
        "saga_step": own,
        "saga_stray": own,
    }
    assert granted[PROJECTOR] == {
        "inbox_parked": "DELETE SELECT UPDATE",
        "outbox": "DELETE SELECT UPDATE",
        "pillarbox_audit": "INSERT SELECT",
        "outbox_blocked_key": own,
        "outbox_claim": own,
        "outbox_claim_end": own,
        "outbox_control": own,
        "outbox_lease": own,
        "outbox_live": "SELECT",
        "outbox_member": own,
        "outbox_seq": "SELECT",
        "outbox_settings": "SELECT",
        "readmodel": own,
        "readmodel_applied": own,
        "readmodel_held": own,
        "readmodel_member": own,
        "saga": "SELECT UPDATE",
        "saga_step": "SELECT",
        "saga_stray": "SELECT",
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
    "SELECT 1 FROM pillarbox_audit",
    "SELECT 1 FROM outbox_blocked_key",
    "SELECT setval('outbox_seq', 1)",
    "UPDATE outbox_settings SET shard_count = 1",
    "SELECT setval('inbox_parked_seq', 1)",
    "TRUNCATE inbox",
    "DROP POLICY pillarbox_tenant ON inbox",
    "ALTER TABLE idempotency NO FORCE ROW LEVEL SECURITY",
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


def test_names_of_roles_can_be_chosen(engine: Engine) -> None:
    options = SchemaOptions(
        schema="shop", tenancy=True, application_role="order", projector_role="user"
    )
    with engine.connect() as connection:
        apply(connection, options)

        assert check(connection, options) == []
        connection.rollback()
