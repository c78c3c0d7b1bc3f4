"""`outbox_live` shows all five states, and reads no more than it must."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Connection, Engine, text

from pillarbox.schema import SchemaOptions, apply
from pillarbox.schema.partitions import DAY
from tests.schema.rows import claim, lease, record

PAST = datetime.now(UTC) - timedelta(hours=1)


def states(connection: Connection) -> dict[int, str]:
    rows = connection.exec_driver_sql("SELECT seq, status FROM outbox_live").all()
    assert len(rows) == len({row.seq for row in rows})
    return {row.seq: row.status for row in rows}


def test_all_five_states_are_shown(any_engine: Engine) -> None:
    apply(any_engine)
    with any_engine.begin() as connection:
        lease(connection)
        for seq, status in enumerate(["NEW", "NEW", "PUBLISHING", "SENT", "FAILED", "DEAD"], 1):
            record(connection, seq, status)
        record(connection, 7, "NEW", set_aside="key")
        record(connection, 8, "SENT", set_aside="later")

        claim(connection, [2, 4])

        assert states(connection) == {
            1: "NEW",
            2: "PUBLISHING",
            3: "PUBLISHING",
            4: "SENT",
            5: "FAILED",
            6: "DEAD",
            7: "NEW",
            8: "SENT",
        }


NOT_OPEN: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "it was ended": ({"ended": True}, {}),
    "its lease has expired": ({}, {"expires_at": PAST}),
    "its lease has no end": ({}, {"expires_at": None}),
    "another member took over": ({}, {"member_id": uuid4()}),
    "the lease was given up": ({}, {"member_id": None}),
    "the epoch moved on": ({}, {"epoch": 8}),
    "the lease is of another scope": ({"scope": "tenant:acme"}, {}),
    "none of its shards is leased": ({}, {"shard": 5, "epoch": 9}),
}


def test_a_claim_stays_open_when_its_owner_has_handed_some_shards_over(any_engine: Engine) -> None:
    apply(any_engine)
    with any_engine.begin() as connection:
        record(connection, 1)
        lease(connection, shard=4, epoch=9)

        claim(connection, [1])

        assert states(connection) == {1: "PUBLISHING"}


def test_a_claim_is_open_only_while_one_of_its_leases_is_its_own(any_engine: Engine) -> None:
    apply(any_engine)
    with any_engine.connect() as connection:
        for reason, (claimed, leased) in NOT_OPEN.items():
            record(connection, 1)
            lease(connection, **leased)
            claim(connection, [1], **claimed)

            assert states(connection) == {1: "NEW"}, reason
            connection.rollback()


def test_a_row_is_shown_once_though_two_claims_name_it(any_engine: Engine) -> None:
    apply(any_engine)
    with any_engine.begin() as connection:
        record(connection, 1)
        lease(connection)

        claim(connection, [1])
        claim(connection, [1], ended=True)
        claim(connection, [1])

        assert states(connection) == {1: "PUBLISHING"}


@pytest.mark.parametrize("partitioned", [False, True])
def test_waiting_rows_are_found_without_reading_the_sent_ones(
    engine: Engine, partitioned: bool
) -> None:
    apply(engine, SchemaOptions(partitioned=partitioned, ahead=DAY))
    with engine.begin() as connection:
        fill(connection, sent=20_000)
        lease(connection)
        for seq, stored in enumerate(["NEW", "NEW", "FAILED", "DEAD"], 1):
            record(connection, seq, stored)
        claim(connection, [1])
        connection.exec_driver_sql("ANALYZE")

        query = text(
            "EXPLAIN (ANALYZE, TIMING off) SELECT * FROM outbox_live WHERE status = :status"
        )
        plans = [
            "\n".join(connection.scalars(query, {"status": status}))
            for status in ("NEW", "PUBLISHING", "FAILED", "DEAD")
        ]

    for plan in plans:
        assert re.search(r"Rows Removed by Filter: \d{3}", plan) is None, plan
        assert "'SENT'" not in plan, plan


def fill(connection: Connection, *, sent: int) -> None:
    """Add rows that were sent, with ids of today."""
    connection.execute(
        text(
            "INSERT INTO outbox (id, tenant_id, status, occurred_at, shard_hash, event_type, "
            "topic, key) SELECT (lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint), 12, '0') "
            "|| '7000' || lpad(to_hex(n), 16, '0'))::uuid, 'tenant-' || n % 20, 'SENT', now(), "
            "n % 65536, 'T', 't', 'k' FROM generate_series(1, :sent) n"
        ),
        {"sent": sent},
    )
