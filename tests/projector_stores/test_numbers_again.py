"""A failover that loses its end: the server gives the same numbers to other events."""

import pytest
from sqlalchemy import delete

from pillarbox.projector.store import OutboxEvent, StoreUnavailable
from pillarbox.schema.tables import outbox
from tests.projector_stores.rig import Owner, Rig, numbers

_CUT = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE application_name = 'pillarbox-projector' AND datname = current_database()"
)


@pytest.mark.parametrize("rig", ["postgres+psycopg", "session+psycopg"], indirect=True)
async def test_an_event_whose_number_is_in_hand_for_another_is_claimed_when_that_has_left(
    rig: Rig,
) -> None:
    await rig.record(1, 2, key="before")
    owner = await rig.owner()
    lost = await owner.claim()
    await rig.run(delete(outbox))
    async with rig.database.engine.begin() as connection:
        await connection.exec_driver_sql(_CUT)
    await rig.record(1, 2, key="after")
    await rig.record(3, key="another")

    beside = await claim(owner, set(numbers(lost)))
    again = await owner.claim(in_hand={3})

    assert (numbers(lost), numbers(beside), numbers(again)) == ([1, 2], [3], [1, 2])
    assert {event.lane[1] for event in again} == {"after"}


async def claim(owner: Owner, in_hand: set[int]) -> list[OutboxEvent]:
    """Claim over a new connection; the old one may still have to be noticed."""
    try:
        return await owner.claim(in_hand=in_hand)
    except StoreUnavailable:
        return await owner.claim(in_hand=in_hand)
