"""An operator and a consumer at one message: the row's lock decides."""

import pytest
from sqlalchemy import select

from pillarbox.consumer.signals import Park
from pillarbox.errors import ParkedInFlight
from pillarbox.ops import ParkedFilter, ParkedOps
from pillarbox.schema.tables import inbox_parked
from tests.consumer.rig import Shop
from tests.support.database import on_postgres

pytestmark = on_postgres


async def refuse(event: dict[str, object]) -> None:
    raise Park(f"in this test: {event}")


async def test_a_message_that_is_being_handled_is_left_alone(shop: Shop) -> None:
    shop.send("m1")
    await shop.loop(refuse).drain()
    ops = ParkedOps(shop.database.engine, actor="jane")
    (parked,) = await ops.messages(ParkedFilter())
    this = select(inbox_parked.c.seq).where(inbox_parked.c.parked_id == parked.parked_id)

    async with shop.database.engine.begin() as handling:
        await handling.execute(this.with_for_update())
        with pytest.raises(ParkedInFlight):
            await ops.discard(parked.parked_id, reason="a test order")

    assert await shop.count("pillarbox_audit") == 0
    assert await shop.count("inbox_parked") == 1
