"""The claim reads its index alone, whatever else is in the table."""

import re

import pytest
from sqlalchemy import Connection, Engine, text

from pillarbox.schema import SchemaOptions, apply
from pillarbox.schema.partitions import DAY

CLAIM = text(
    "SELECT seq, id FROM outbox WHERE (shard_hash & 63) = :shard AND tenant_id = :tenant "
    "AND status = 'NEW' AND set_aside IS NULL AND seq > :after ORDER BY seq LIMIT 100"
)
TURNS = text(
    "SELECT r.seq FROM unnest(CAST(:shards AS int[])) s CROSS JOIN LATERAL ("
    "SELECT seq FROM outbox WHERE (shard_hash & 63) = s AND tenant_id = :tenant "
    "AND status = 'NEW' AND set_aside IS NULL ORDER BY seq LIMIT 10) r"
)
ANY_SHARD = text(
    "SELECT seq FROM outbox WHERE (shard_hash & 63) = ANY (CAST(:shards AS int[])) "
    "AND tenant_id = :tenant AND status = 'NEW' AND set_aside IS NULL"
)
FILL = text(
    "INSERT INTO outbox (id, tenant_id, status, occurred_at, shard_hash, event_type, topic, key) "
    "SELECT (lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint), 12, '0') || '7000' || "
    "lpad(to_hex(n), 16, '0'))::uuid, 'tenant-' || n % 200, "
    "CASE WHEN n % 2000 = 0 THEN 'NEW' ELSE 'SENT' END, now(), n * 7919 % 65536, 'T', 't', 'k' "
    "FROM generate_series(1, 200000) n"
)


def plan_of(connection: Connection, query: str, **values: object) -> str:
    explain = text(f"EXPLAIN (ANALYZE, BUFFERS, TIMING off, SUMMARY off) {query}")
    return "\n".join(connection.scalars(explain, values))


@pytest.mark.parametrize("partitioned", [False, True])
def test_claims_use_the_claim_index_among_200000_rows(engine: Engine, partitioned: bool) -> None:
    apply(engine, SchemaOptions(partitioned=partitioned, ahead=DAY))
    with engine.begin() as connection:
        connection.execute(FILL)
        connection.exec_driver_sql("ANALYZE outbox")

        shards = {"shards": [0, 16, 40], "tenant": "tenant-0"}
        plans = [
            plan_of(connection, str(CLAIM), shard=0, tenant="tenant-0", after=0),
            plan_of(connection, str(TURNS), **shards),
            plan_of(connection, str(ANY_SHARD), **shards),
        ]

    for plan in plans:
        assert re.search("Index.* Scan (using|on) (ix_outbox_claim|outbox_p[0-9]+_expr_)", plan), (
            plan
        )
        assert "Rows Removed by Filter" not in plan, plan
        assert partitioned or "Seq Scan" not in plan, plan
        assert partitioned or "Sort" not in plan, plan


def test_the_index_expression_follows_the_number_of_shards(engine: Engine) -> None:
    apply(engine, SchemaOptions(shards=16))

    with engine.connect() as connection:
        definition = connection.scalar(text("SELECT pg_get_indexdef('ix_outbox_claim'::regclass)"))

    assert "(shard_hash & 15)" in definition


def test_the_projectors_role_reads_without_a_filter_on_tenants(engine: Engine) -> None:
    apply(engine, SchemaOptions(tenancy=True))

    with engine.begin() as connection:
        connection.execute(FILL)
        connection.exec_driver_sql("ANALYZE outbox")
        connection.exec_driver_sql("SET LOCAL ROLE pillarbox_projector")
        plan = plan_of(connection, str(ANY_SHARD), shards=[0, 16], tenant="tenant-0")

    assert "current_setting" not in plan, plan
    assert "ix_outbox_claim" in plan, plan
