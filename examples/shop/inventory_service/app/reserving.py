"""Reserve stock for an order, all of it or nothing, and release it again."""

from collections.abc import Mapping

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession

from examples.shop.inventory_service.app.database import Reservation, Stock


async def reserve(session: AsyncSession, order_id: str, wanted: Mapping[str, int]) -> str | None:
    """Take the products out of the stock; return the first one of which there is not enough."""
    async with session.begin_nested() as attempt:
        for product_id, quantity in sorted(wanted.items()):
            taken = await session.execute(
                update(Stock)
                .where(Stock.product_id == product_id, Stock.available >= quantity)
                .values(available=Stock.available - quantity)
                .returning(Stock.available)
            )
            if taken.first() is None:
                await attempt.rollback()
                return product_id
            made = Reservation(order_id=order_id, product_id=product_id, quantity=quantity)
            session.add(made)
    return None


async def is_reserved(session: AsyncSession, order_id: str) -> bool:
    """Tell whether stock was reserved for an order before, released or not."""
    query = select(Reservation.id).where(Reservation.order_id == order_id).limit(1)
    return await session.scalar(query) is not None


async def release(session: AsyncSession, order_id: str) -> bool:
    """Put what was reserved for an order back; a conditional update, so that it counts once."""
    held = await session.scalars(
        select(Reservation)
        .where(Reservation.order_id == order_id, Reservation.state == "RESERVED")
        .order_by(Reservation.product_id)
    )
    released = False
    for reservation in held.all():
        reservation.state = "RELEASED"
        await session.execute(
            update(Stock)
            .where(Stock.product_id == reservation.product_id)
            .values(available=Stock.available + reservation.quantity)
        )
        released = True
    return released
