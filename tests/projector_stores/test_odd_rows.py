"""Rows of other hands, whose headers no bus could send, odd tenants, payloads that compress well."""

from typing import Any

import pytest
from sqlalchemy import text

from tests.projector_stores.rig import Rig, numbers, on_postgres

on_own_connection = pytest.mark.parametrize("rig", ["postgres+psycopg"], indirect=True)


@pytest.mark.parametrize("metadata", [{"a": "\ud800"}, {"a": 1}, ["a"], "a", {"a": None}])
async def test_headers_that_are_no_texts_by_name_are_told(rig: Rig, metadata: Any) -> None:
    await rig.record(1, event_metadata=metadata)
    await rig.record(2, event_metadata={"a": "b"})
    owner = await rig.owner()

    odd, good = await owner.claim()

    assert (odd.unreadable, good.unreadable) == (True, False)
    assert dict(good.envelope.headers) == {"a": "b"}


@on_postgres
async def test_a_claim_counts_payloads_as_they_are_sent(rig: Rig) -> None:
    await rig.record(*range(1, 7), payload={"note": "x" * 200_000})
    owner = await rig.owner(batch_bytes=500_000)

    events = await owner.claim()

    assert 1 <= len(events) <= 3
    assert numbers(events) == list(range(1, len(events) + 1))


@pytest.mark.parametrize("tenant", ["null", "NULL", 'a"b\\c', "a,{b}", " a "])
async def test_a_tenant_may_have_any_name(rig: Rig, tenant: str) -> None:
    await rig.record(1, 2, 3, tenant_id=tenant)
    await rig.record(4, tenant_id="acme")
    owner = await rig.owner()

    backlog = await owner.claim(2)  # in turns, by the names of tenants
    backlog += await owner.claim(in_hand={event.seq for event in backlog})
    await owner.settle(sent=backlog)
    await rig.record(5, tenant_id=tenant)
    await rig.record(6, tenant_id="acme")
    others = await owner.claim(passed_over=[tenant])

    assert sorted(numbers(backlog)) == [1, 2, 3, 4]
    assert await rig.states() == {1: "SENT", 2: "SENT", 3: "SENT", 4: "SENT", 5: "NEW", 6: "NEW"}
    assert numbers(others) == [6]
    assert numbers(await owner.claim(in_hand={6})) == [5]


@on_own_connection
@pytest.mark.parametrize("time", ["infinity", "-infinity", "0044-03-15 BC", "20000-01-01"])
@pytest.mark.parametrize("column", ["occurred_at", "created_at"])
async def test_a_time_that_no_calendar_has_holds_up_no_other_row(
    rig: Rig, column: str, time: str
) -> None:
    """The claim failed for every tenant, again and again."""
    await rig.record(1, 2)
    async with rig.database.engine.begin() as connection:
        await connection.execute(text(f"UPDATE outbox SET {column} = '{time}' WHERE seq = 1"))
    owner = await rig.owner()

    odd, good = await owner.claim()

    assert numbers([odd, good]) == [1, 2]
    assert (odd.unreadable, good.unreadable) == (column == "occurred_at", False)


@on_own_connection
async def test_what_is_never_due_keeps_nobody_from_being_looked_at(rig: Rig) -> None:
    await rig.record(1, 2)
    owner = await rig.owner()
    async with rig.database.engine.begin() as connection:
        later = "UPDATE outbox SET set_aside = 'later', deliver_at = {} WHERE seq = {}"
        await connection.execute(text(later.format("'infinity'", 1)))
        await connection.execute(text(later.format("now()", 2)))

    promoted = await owner.store.promote(sorted(owner.epochs))
    again = await owner.store.promote(sorted(owner.epochs))

    assert (promoted.events, again.events, again.next_due) == (1, 0, None)
    assert numbers(await owner.claim()) == [2]
