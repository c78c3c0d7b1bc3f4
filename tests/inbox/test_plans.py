"""Claims and clean-ups go by their indexes, whatever else is in the table."""

import re
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from sqlalchemy import Connection, Engine, create_engine, event, text

from pillarbox import InboxMessage, SyncSqlAlchemyInbox
from pillarbox.inbox import statements
from pillarbox.inbox.register import CLEANUP_BATCH
from pillarbox.schema import apply
from tests.ops.test_plans import plans_of
from tests.schema.conftest import database_url, engine

__all__ = ["database_url", "engine"]

# 60,000 messages, a thousand a day; nine of ten are of one tenant and consumer.
FILL = text(
    "INSERT INTO inbox (processed_at, tenant_id, consumer, message_id, event_type, payload_hash) "
    "SELECT now() - make_interval(mins => n * 3 / 2), 'tenant-' || CASE n % 10 WHEN 1 THEN n % 7 "
    "ELSE 0 END, 'consumer-' || CASE n % 10 WHEN 1 THEN n % 3 ELSE 0 END, 'message-' || n, 'T', "
    "repeat('0', 64) FROM generate_series(1, 60000) n"
)
OLD_OF_OTHERS = 3_500
BATCH = [InboxMessage(message_id=f"message-{n}", event_type="T") for n in range(30, 9_030, 90)]


def inbox(connection: Connection) -> SyncSqlAlchemyInbox:
    return SyncSqlAlchemyInbox(connection, "tenant-0", consumer="consumer-0")


def clean_up_all(connection: Connection) -> object:
    statement = statements.delete_old("postgresql", None, of_tenant=False)
    age = {"cutoff": timedelta(days=30), "batch": CLEANUP_BATCH}
    return connection.execute(statement, {"consumer": "consumer-0", **age})


CALLS: dict[str, tuple[Callable[[Connection], object], str]] = {
    "claim, new": (lambda c: inbox(c).claim("new", event_type="T"), "inbox_pkey"),
    "claim, again": (lambda c: inbox(c).claim("message-30", event_type="T"), "inbox_pkey"),
    "claim many": (lambda c: inbox(c).claim_many(BATCH), "inbox_pkey"),
    "mark": (lambda c: inbox(c).mark_processed("new-2", "T"), "inbox_pkey"),
    "is processed": (lambda c: inbox(c).is_processed("message-30"), "inbox_pkey"),
    "record": (lambda c: inbox(c).get_record("message-30"), "inbox_pkey"),
    "clean up": (lambda c: inbox(c).cleanup_old_records(30), "ix_inbox_processed_at"),
    "clean up, all tenants": (clean_up_all, "ix_inbox_processed_at"),
}


@pytest.fixture
def filled(engine: Engine) -> Iterator[Connection]:
    apply(engine)
    with engine.begin() as connection:
        connection.execute(FILL)
        connection.exec_driver_sql("ANALYZE inbox")
        yield connection


def test_each_call_uses_its_index_and_reads_no_more_than_it_must(filled: Connection) -> None:
    for call, (body, index) in CALLS.items():
        plans = plans_of(filled, body)

        assert index in "\n".join(plans), call
        for plan in plans:
            assert "Seq Scan on inbox" not in plan, plan
            read = [float(found) for found in re.findall(r"actual rows=([\d.]+)", plan)]
            removed = [int(found) for found in re.findall(r"Rows Removed by Filter: (\d+)", plan)]
            assert max(read) <= max(len(BATCH), CLEANUP_BATCH), plan
            assert sum(removed) <= OLD_OF_OTHERS, plan


def test_sqlite_cleans_up_by_the_index_on_time() -> None:
    engine = create_engine("sqlite://")
    apply(engine)
    sent: list[tuple[str, tuple[object, ...]]] = []
    event.listen(engine, "before_cursor_execute", lambda *call: sent.append(call[2:4]))

    with engine.connect() as connection:
        inbox(connection).cleanup_old_records(30)
        statement, values = sent[-1]
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values).all()

    assert "ix_inbox_processed_at (processed_at<?)" in str(plan)
    engine.dispose()
