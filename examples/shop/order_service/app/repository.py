"""Between the order and its row."""

from dataclasses import asdict

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from examples.shop.order_service.app.db import OrderRow
from examples.shop.order_service.app.domain import Order, Status
from examples.shop.order_service.app.events import Item


class OrderRepository:
    """Save and find orders inside a unit of work; a row that another changed meanwhile is refused."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def save(self, order: Order) -> None:
        row = await self._row(order.id)
        if row is None:
            row = OrderRow(
                id=order.id,
                user_id=order.user_id,
                items=[asdict(item) for item in order.items],
                total_amount=order.total_amount,
                created_at=order.created_at,
            )
            self._session.add(row)
        row.status = order.status
        await self._session.flush()
        order.version = row.version

    async def get(self, order_id: str) -> Order | None:
        row = await self._row(order_id)
        if row is None:
            return None
        items = [Item(**item) for item in row.items]
        return Order(
            row.id,
            row.user_id,
            items,
            row.total_amount,
            row.created_at,
            Status(row.status),
            row.version,
        )

    async def _row(self, order_id: str) -> OrderRow | None:
        return await self._session.scalar(select(OrderRow).where(OrderRow.id == order_id))
