"""The plans of the statements on the projector's own connections, made while the table is empty.

Such a plan stays until the table is analyzed: it must not read all of what has come meanwhile.
"""

import re

import pytest
from sqlalchemy import text

from pillarbox.projector.postgres.connecting import connect_to
from pillarbox.projector.postgres.statements import Statements
from pillarbox.projector.postgres.store import PostgresStore
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
# Planned each time for the table as it is: in one with few rows all of them may be read.
PLANNED_ANEW = {
    "settle_sent_many", "settle_deleted_many", "promote", "release_keys", "set_aside", "block_keys",
    "settle_failed", "count_attempt", "unmark",
}  # fmt: skip
# A key for each row.
FILL = text("""
    INSERT INTO outbox (id, tenant_id, status, occurred_at, shard_hash, event_type, topic, key, payload)
    SELECT gen_random_uuid(), 'default', :status, now(), n * 7919 % 65536, 'T', 't', 'k' || n, '{}'
    FROM generate_series(1, CAST(:rows AS int)) n""")
OUTBOX = re.compile(
    r"(?:(?=Seq)|Index.* Scan using )(\w+)(?: Scan)? on outbox .*(?:\n *Index Cond: (.*))?"
)


def numbered(statement: bytes) -> bytes:
    """Write the parameters as the server does."""
    places: dict[bytes, int] = {}

    def place(found: re.Match[bytes]) -> bytes:
        return b"$%d" % places.setdefault(found[1], len(places) + 1)

    return re.sub(rb"%\((\w+)\)s", place, statement).replace(b"%%", b"%")


@pytest.mark.parametrize("rig", ["postgres+psycopg"], indirect=True)
@pytest.mark.parametrize("name", PLANS)
async def test_a_plan_for_an_empty_table_uses_the_index_of_a_full_one(rig: Rig, name: str) -> None:
    assert await indexes_of_plan(rig, name, strict=name not in PLANNED_ANEW) == PLANS[name]


@pytest.mark.parametrize("rig", ["postgres+psycopg"], indirect=True)
@pytest.mark.parametrize("name", PLANS)
async def test_so_does_one_for_a_table_that_had_rows_of_many_tenants(rig: Rig, name: str) -> None:
    for number in range(1, TENANTS):
        await rig.record(number, tenant_id=f"t{number}")
    await look_at_values(rig)
    await rig.clear()

    assert await indexes_of_plan(rig, name, strict=name not in PLANNED_ANEW) == PLANS[name]


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


async def indexes_of_plan(rig: Rig, name: str, *, strict: bool = True) -> set[str]:
    """Return what a plan reads the outbox by, when it is made now."""
    statements = Statements(schema=None, shards=64, scope=Scope(), by_row=False)
    connection = await connect_to(rig.database.url)()
    try:
        await connection.execute("VACUUM (ANALYZE) outbox")
        explain = b"EXPLAIN (GENERIC_PLAN) " + numbered(statements[name])
        cursor = await connection.execute(explain, prepare=False)
        plan = "\n".join(line for (line,) in await cursor.fetchall())
    finally:
        await connection.close()

    return {
        index if by_key(index, condition) or not strict else f"all of {index}"
        for index, condition in OUTBOX.findall(plan)
    }


def by_key(index: str, condition: str) -> bool:
    """Tell whether an index leads to a row: the primary key may be read from end to end."""
    return index != KEY or (
        "tenant_id" in condition and re.search(r"\bid\b", condition) is not None
    )


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

    used = re.findall(
        r"(Seq|Index)(?: Only)? Scan(?: using (\w+))? on outbox_blocked_key"
        r"(?:.*\n *Index Cond: (.*))?",
        plan,
    )
    by_time = ("Index", "ix_outbox_blocked_key_topic")
    assert [found[:2] for found in used[:2]] == [by_time, by_time], plan
    assert used[2:] == [
        ("Index", "outbox_blocked_key_pkey", "((tenant_id)::text = limited.tenant_id)"),
        (
            "Index",
            "outbox_blocked_key_pkey",
            "(((tenant_id)::text = (w.tenant_id)::text) AND ((key)::text = (w.key)::text))",
        ),
    ], plan


@pytest.mark.parametrize("rig", ["postgres+psycopg"], indirect=True)
async def test_settling_several_tenants_keeps_no_plan_that_was_made_for_a_small_table(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pillarbox.projector.postgres.settling._WORTH_AN_INDEX", 4)
    for seq in range(6):
        await rig.record(seq, tenant_id=f"t{seq}")
    owner = await rig.owner()
    events = await owner.claim()
    assert isinstance(owner.store, PostgresStore)

    kept = []
    for first in (0, 2, 4):
        await owner.settle(sent=events[first : first + 2])
        async with owner.store._settling.use() as connection:
            found = await connection.execute(
                "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%''SENT''%'",
                prepare=False,
            )
            kept.append(await found.fetchone())

    assert kept == [(0,), (0,), (1,)]
