"""What waits: counts that stop at a cap, and the oldest event of each tenant.

Every read is by a partial index and bounded, whatever the backlog; `tests/ops/test_plans.py` holds
it to that. Ordering by an index's own columns keeps the planner from reading SENT rows.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    func,
    literal_column,
    or_,
    select,
    text,
    true,
    union_all,
)

from pillarbox.ops.oldest import first_of_keys, first_of_pairs
from pillarbox.ops.transactions import Transactions
from pillarbox.ops.views import Counted, OldestPending
from pillarbox.outbox.release import SKIPPED
from pillarbox.schema.tables import CLAIMABLE, SET_ASIDE, outbox, outbox_settings
from pillarbox.schema.types import DatabaseTime

MOST_PAIRS: Final = 10_000


def backlog(
    connection: Connection, transactions: Transactions, tenant_id: str | None, cap: int
) -> Counted:
    """Count NEW and PUBLISHING events up to a cap."""
    found = 0
    for source in sources(connection, transactions, tenant_id, cap):
        counted = select(func.count()).select_from(source.subquery())
        found += connection.scalar(counted) or 0
        if found > cap:
            return Counted(cap, exact=False)
    return Counted(found)


def backlog_by_tenant(
    connection: Connection, transactions: Transactions, cap: int
) -> dict[str, int]:
    """Count by tenant among the events that a capped count sees, the busiest first."""
    found = sources(connection, transactions, transactions.tenant_id, cap)
    rows = union_all(*(select(source.subquery()) for source in found)).subquery()
    counted = func.count().label("events")
    query = select(rows.c.tenant_id, counted).group_by(rows.c.tenant_id).order_by(counted.desc())
    return {row.tenant_id: row.events for row in connection.execute(query)}


def troubled(
    connection: Connection,
    transactions: Transactions,
    tenant_id: str | None,
    status: str,
    cap: int,
) -> Counted:
    """Count FAILED events, or DEAD ones that were not skipped, up to a cap."""
    columns = transactions.table(outbox).c
    query = select(columns.tenant_id).where(columns.status == status, *_of(columns, tenant_id))
    if status == "DEAD":
        query = query.where(or_(columns.error_class.is_(None), columns.error_class != SKIPPED))
    query = query.order_by(columns.tenant_id).limit(cap + 1)
    found = connection.scalar(select(func.count()).select_from(query.subquery())) or 0
    return Counted(min(found, cap), exact=found <= cap)


def sources(
    connection: Connection, transactions: Transactions, tenant_id: str | None, cap: int
) -> Sequence[Select[Any]]:
    """Return what waits as bounded queries: set aside, being sent, and claimable."""
    table = transactions.table(outbox)
    columns, own = table.c, _of(table.c, tenant_id)
    # Only NEW events are set aside. To ask for the status as well would read each row itself.
    set_aside = (
        select(columns.tenant_id)
        .where(text(SET_ASIDE), *own)
        .order_by(columns.tenant_id, columns.key, columns.seq)
    )
    publishing = (
        select(columns.tenant_id)
        .where(columns.status == "PUBLISHING", *own)
        .order_by(columns.tenant_id)
    )
    claimable = claimable_rows(connection, transactions, tenant_id, [columns.tenant_id], cap)
    return [set_aside.limit(cap + 1), publishing.limit(cap + 1), claimable]


def claimable_rows(
    connection: Connection,
    transactions: Transactions,
    tenant_id: str | None,
    columns: Sequence[ColumnElement[Any]],
    cap: int,
) -> Select[Any]:
    """Return the claimable events, at most one more than the cap."""
    table = transactions.table(outbox)
    if tenant_id is None or connection.dialect.name != "postgresql":
        query = select(*columns).where(text(CLAIMABLE), *_of(table.c, tenant_id))
        return query.order_by(table.c.txid.desc()).limit(cap + 1)
    # One probe for each shard, because the claim index begins with it.
    shards, shard = shards_of(connection, transactions)
    of_shard = (
        select(*columns)
        .where(shard == shards.c.shard, table.c.tenant_id == tenant_id, text(CLAIMABLE))
        .order_by(table.c.seq.desc())
        .limit(cap + 1)
        .lateral("of_shard")
    )
    return select(of_shard).select_from(shards.join(of_shard, true())).limit(cap + 1)


def shards_of(connection: Connection, transactions: Transactions) -> tuple[Any, Any]:
    """Return the shards as a table, and a row's shard exactly as the claim index has it."""
    settings = transactions.table(outbox_settings)
    count = connection.scalar(select(settings.c.shard_count)) or 1
    series = func.generate_series(0, count - 1).table_valued("shard", name="shards")
    table = transactions.table(outbox)
    return series.render_derived(), table.c.shard_hash.op("&")(literal_column(str(count - 1)))


def oldest(
    connection: Connection, transactions: Transactions, tenants: int
) -> Sequence[OldestPending]:
    """Return since when the oldest waiting event of each tenant waits, the oldest first.

    NEW, FAILED and PUBLISHING events wait; a delayed one from the time on at which it is due. With
    more than 10,000 pairs of shard and tenant, or blocked keys, only the first are looked at.
    """
    since: dict[str, datetime] = {}
    for query in _oldest_queries(connection, transactions):
        for row in connection.execute(query):
            since[row.tenant_id] = min(row.since, since.get(row.tenant_id, row.since))
    now: datetime = connection.execute(select(DatabaseTime())).scalar_one()
    first = sorted(since.items(), key=lambda item: item[1])[:tenants]
    return [OldestPending(tenant_id, at, now - at) for tenant_id, at in first]


def _oldest_queries(connection: Connection, transactions: Transactions) -> Iterator[Select[Any]]:
    table = transactions.table(outbox)
    columns, own = table.c, _of(table.c, transactions.tenant_id)
    if connection.dialect.name == "postgresql":
        _, shard = shards_of(connection, transactions)
        if transactions.tenant_id is None:
            yield first_of_pairs(table, shard, MOST_PAIRS)
        else:
            yield _first_of_shards(connection, transactions)
        yield first_of_keys(table, transactions.tenant_id, MOST_PAIRS)
    else:
        waiting = and_(columns.status == "NEW", func.coalesce(columns.set_aside, "key") == "key")
        yield _least(select(columns.tenant_id, columns.created_at).where(waiting, *own))
    due = and_(columns.set_aside == "later", columns.deliver_at <= DatabaseTime(), *own)
    yield (
        select(columns.tenant_id, columns.deliver_at.label("since"))
        .where(due)
        .order_by(columns.deliver_at)
        .limit(MOST_PAIRS)
    )
    for status in ("FAILED", "PUBLISHING"):
        rows = select(columns.tenant_id, columns.created_at).where(columns.status == status, *own)
        yield _least(rows.order_by(columns.tenant_id).limit(MOST_PAIRS))


def _first_of_shards(connection: Connection, transactions: Transactions) -> Select[Any]:
    """Return the first event of one tenant in each shard."""
    shards, shard = shards_of(connection, transactions)
    columns = transactions.table(outbox).c
    first = (
        select(columns.tenant_id, columns.created_at.label("since"))
        .where(shard == shards.c.shard, columns.tenant_id == transactions.tenant_id)
        .where(text(CLAIMABLE))
        .order_by(columns.seq)
        .limit(1)
        .lateral("first")
    )
    return select(first).select_from(shards.join(first, true()))


def _least(rows: Select[Any]) -> Select[Any]:
    found = rows.subquery()
    return select(found.c.tenant_id, func.min(found.c.created_at).label("since")).group_by(
        found.c.tenant_id
    )


def _of(columns: Any, tenant_id: str | None) -> list[ColumnElement[bool]]:
    return [] if tenant_id is None else [columns.tenant_id == tenant_id]
