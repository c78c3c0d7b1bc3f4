"""The first event of each group, by jumping from group to group through an index (PostgreSQL)."""

from typing import Any

from sqlalchemy import Select, Table, literal_column, select, text, true, tuple_

from pillarbox.schema.tables import CLAIMABLE


def first_of_pairs(table: Table, shard: Any, most: int) -> Select[Any]:
    """Return the first claimable event of each (shard, tenant), by the claim index."""
    columns = table.c
    event = select(
        shard.label("shard"), columns.tenant_id, columns.created_at.label("since")
    ).where(text(CLAIMABLE))
    ordered = event.order_by(shard, columns.tenant_id, columns.seq).limit(1)
    return _jump(ordered, tuple_(shard, columns.tenant_id), ("shard", "tenant_id"), most)


def first_of_keys(table: Table, tenant_id: str | None, most: int) -> Select[Any]:
    """Return the first event behind each blocked key, by the index on what is set aside."""
    columns = table.c
    event = select(columns.tenant_id, columns.key, columns.created_at.label("since")).where(
        columns.set_aside == "key"
    )
    if tenant_id is not None:
        event = event.where(columns.tenant_id == tenant_id)
    ordered = event.order_by(columns.tenant_id, columns.key, columns.seq).limit(1)
    return _jump(ordered, tuple_(columns.tenant_id, columns.key), ("tenant_id", "key"), most)


def _jump(event: Select[Any], place: Any, names: tuple[str, str], most: int) -> Select[Any]:
    """Begin with the first event, and go on with the first one of the next group."""
    first = event.subquery("first")
    steps = select(literal_column("1").label("step"), first).cte("steps", recursive=True)
    following = event.where(place > tuple_(*(steps.c[name] for name in names))).lateral("following")
    steps = steps.union_all(
        select(steps.c.step + 1, following)
        .select_from(steps.join(following, true()))
        .where(steps.c.step < most)
    )
    return select(steps.c.tenant_id, steps.c.since)
