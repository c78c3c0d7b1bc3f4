"""The short program of sagas runs as it is written, from the order to its end."""

from pillarbox.saga.machine import State
from tests.saga.shop import Shop
from tests.support.database import on

EVERYWHERE = on(
    "postgres18+asyncpg", "postgres16+psycopg", "postgres15+asyncpg", "sqlite+aiosqlite"
)


@EVERYWHERE
async def test_an_order_is_confirmed_when_all_steps_succeed(shop: Shop) -> None:
    await shop.order("o-1", "o-2")

    await shop.settle()

    assert await shop.statuses() == {"o-1": "CONFIRMED", "o-2": "CONFIRMED"}
    assert [row.state for row in await shop.rows()] == ["COMPLETED", "COMPLETED"]
    assert await shop.outcomes() == {("reserve", "do"): "ok", ("charge", "do"): "ok"}
    assert shop.heard.stands == [State.COMPLETED] * 2
    assert shop.stock == {"o-1", "o-2"}


@EVERYWHERE
async def test_a_refused_payment_has_the_reservation_undone_and_the_order_rejected(
    shop: Shop,
) -> None:
    shop.refuses.add("pay o-1")
    await shop.order("o-1")

    await shop.settle()

    assert await shop.statuses() == {"o-1": "REJECTED"}
    assert shop.handled == [("reserve", "o-1"), ("charge", "o-1"), ("release", "o-1")]
    assert await shop.outcomes() == {
        ("reserve", "do"): "ok",
        ("charge", "do"): "failed",
        ("reserve", "undo"): "sent",
    }
    row = await shop.row()
    assert (row.state, row.cause_step, row.cause) == ("COMPENSATED", "charge", "failed")
    assert shop.stock == set()
