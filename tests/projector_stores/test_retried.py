"""An event that an operator retries, whatever the store."""

from sqlalchemy import Connection

from pillarbox.ops.decisions import Decision, decide, lock_troubled
from pillarbox.projector.order import OrderWatch
from tests.projector_stores.rig import Rig, numbers


async def retry(rig: Rig, seq: int) -> None:
    event_id = (await rig.row(seq))["id"]

    def decided(connection: Connection) -> None:
        rows = lock_troubled(connection, None, "default", [event_id])
        assert len(rows) == 1
        decide(connection, None, Decision.RETRY, tenant_id="default", rows=rows, chunk=10)

    async with rig.database.engine.begin() as connection:
        await connection.run_sync(decided)


async def test_what_is_sent_late_because_it_is_retried_breaks_no_order(rig: Rig) -> None:
    """An event that had expired, and one that was skipped, were taken for writes past the library."""
    order = {"aggregate_type": "order", "aggregate_id": "order-1"}
    await rig.record(1, status="DEAD", error_class="expired", aggregate_version=1, **order)
    await rig.record(2, status="DEAD", error_class="skipped", aggregate_version=2, **order)
    await rig.record(3, aggregate_version=3, **order)
    owner, watch = await rig.owner(), OrderWatch()
    found = watch.broken(await owner.claim())
    await retry(rig, 1)
    await retry(rig, 2)

    late = await owner.claim(in_hand={3})

    assert (numbers(late), found, watch.broken(late)) == ([1, 2], [], [])


async def test_what_is_written_late_breaks_the_order(rig: Rig) -> None:
    order = {"aggregate_type": "order", "aggregate_id": "order-1"}
    await rig.record(1, aggregate_version=2, **order)
    owner, watch = await rig.owner(), OrderWatch()
    assert watch.broken(await owner.claim()) == []
    await rig.record(2, aggregate_version=1, **order)

    late = await owner.claim(in_hand={1})

    assert numbers(watch.broken(late)) == [2]
