"""The plans of the statements on the projector's own connections, made while the table is empty.

Such a plan stays until the table is analyzed: it must not read all of what has come meanwhile.
"""

import re

import pytest
from sqlalchemy import text

from pillarbox.projector.postgres.connecting import connect_to
from pillarbox.projector.postgres.statements import Statements
from pillarbox.projector.scope import Scope
from tests.projector_stores.rig import Rig

TENANTS = 200
FEED, TURNS, KEY = "ix_outbox_txid", "ix_outbox_claim", "pk_outbox"
FAILED, LATER, ASIDE = "ix_outbox_processing", "ix_outbox_due", "ix_outbox_set_aside"
PLANS = {
    "read": {FEED, TURNS},
    "read_sized": {FEED, TURNS},
    "read_and_claim": {FEED},
    "settle_sent": {KEY},
    "settle_sent_many": {KEY},
    "settle_deleted": {KEY},
    "settle_deleted_many": {KEY},
    "discover": {TURNS},
    "promote": {FAILED, LATER, KEY},
    "release_keys": {ASIDE, KEY},
    "set_aside": {KEY},
    "block_keys": {KEY},
    "settle_failed": {KEY},
    "count_attempt": {KEY},
    "unmark": {KEY},
}
# A key for each row.
FILL = text("""
    INSERT INTO outbox (id, tenant_id, status, occurred_at, shard_hash, event_type, topic, key, payload)
    SELECT gen_random_uuid(), 'default', :status, now(), n * 7919 % 65536, 'T', 't', 'k' || n, '{}'
    FROM generate_series(1, CAST(:rows AS int)) n""")
OUTBOX = re.compile(r"(Seq Scan|Index.* Scan using (\w+)) on outbox ")


def numbered(statement: bytes) -> bytes:
    """Write the parameters as the server does."""
    places: dict[bytes, int] = {}

    def place(found: re.Match[bytes]) -> bytes:
        return b"$%d" % places.setdefault(found[1], len(places) + 1)

    return re.sub(rb"%\((\w+)\)s", place, statement).replace(b"%%", b"%")


@pytest.mark.parametrize("rig", ["postgres+psycopg"], indirect=True)
@pytest.mark.parametrize("name", PLANS)
async def test_a_plan_for_an_empty_table_uses_the_index_of_a_full_one(rig: Rig, name: str) -> None:
    assert await indexes_of_plan(rig, name) == PLANS[name]


@pytest.mark.parametrize("rig", ["postgres+psycopg"], indirect=True)
@pytest.mark.parametrize("name", PLANS)
async def test_so_does_one_for_a_table_that_had_rows_of_many_tenants(rig: Rig, name: str) -> None:
    for number in range(1, TENANTS):
        await rig.record(number, tenant_id=f"t{number}")
    await look_at_values(rig)
    await rig.clear()

    assert await indexes_of_plan(rig, name) == PLANS[name]


@pytest.mark.parametrize("rig", ["postgres+psycopg"], indirect=True)
@pytest.mark.parametrize("few", [0, 20], ids=["nothing waits", "few wait"])
async def test_so_does_one_for_a_table_whose_rows_are_nearly_all_sent(rig: Rig, few: int) -> None:
    """Setting aside read all that could be claimed for each event, when a backlog had come since."""
    await rig.run(
        FILL.bindparams(status="SENT", rows=20_000),
        *(FILL.bindparams(status=status, rows=few) for status in ("NEW", "FAILED", "DEAD")),
    )

    assert {name: await indexes_of_plan(rig, name) for name in PLANS} == PLANS


async def look_at_values(rig: Rig) -> None:
    """Have the server count the values of each column."""
    connection = await connect_to(rig.database.url)()
    await connection.execute("ANALYZE outbox")
    await connection.close()


async def indexes_of_plan(rig: Rig, name: str) -> set[str]:
    """Return what a plan reads the outbox by, when it is made now."""
    statements = Statements(schema=None, shards=64, scope=Scope(), by_row=False)
    connection = await connect_to(rig.database.url)()
    try:
        await connection.execute("VACUUM (ANALYZE) outbox")
        explain = b"EXPLAIN (GENERIC_PLAN) " + numbered(statements[name])
        cursor = await connection.execute(explain, prepare=False)
        plan = [line for (line,) in await cursor.fetchall()]
    finally:
        await connection.close()

    used = [found for line in plan if (found := OUTBOX.search(line))]
    return {found[2] or found[1] for found in used}


@pytest.mark.parametrize("rig", ["postgres+psycopg"], indirect=True)
async def test_a_topic_is_released_by_time_and_for_a_limited_tenant_by_its_own_keys(
    rig: Rig,
) -> None:
    """A tenant with a rate, none of whose keys waited, had those of all others looked at."""
    statement = Statements(schema=None, shards=64, scope=Scope(), by_row=False)["lock_topic"]
    connection = await connect_to(rig.database.url)()
    explain = b"EXPLAIN (GENERIC_PLAN) " + numbered(statement)
    found = await (await connection.execute(explain, prepare=False)).fetchall()
    plan = "\n".join(line for (line,) in found)
    await connection.close()

    used = re.findall(r"(Seq|Index)(?: Only)? Scan(?: using (\w+))? on outbox_blocked_key", plan)
    assert used == [
        ("Index", "ix_outbox_blocked_key_topic"),
        ("Index", "outbox_blocked_key_pkey"),
    ], plan
