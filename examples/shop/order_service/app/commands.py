"""The command side: command → handler → aggregate → unit of work → repository."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from examples.shop.order_service.app.domain import Order
from examples.shop.order_service.app.events import Item
from pillarbox import SQLAlchemyUnitOfWork


@dataclass(frozen=True)
class CreateOrder:
    user_id: str
    items: Sequence[Item]
    total_amount: Decimal


@dataclass(frozen=True)
class ConfirmOrder:
    order_id: str


@dataclass(frozen=True)
class RejectOrder:
    order_id: str
    reason: str


class OrderCommandHandler:
    """Execute a command in a unit of work: the order's row and its events are one transaction."""

    def __init__(self, uow: SQLAlchemyUnitOfWork) -> None:
        self._uow = uow

    async def create(self, command: CreateOrder) -> Order:
        order = Order.create(command.user_id, command.items, command.total_amount)
        await self._uow.repository(Order).save(order)
        await self._uow.commit()
        return order

    async def confirm(self, command: ConfirmOrder) -> None:
        order = await self._order(command.order_id)
        order.confirm()
        await self._uow.repository(Order).save(order)
        await self._uow.commit()

    async def reject(self, command: RejectOrder) -> None:
        order = await self._order(command.order_id)
        order.reject(command.reason)
        await self._uow.repository(Order).save(order)
        await self._uow.commit()

    async def _order(self, order_id: str) -> Order:
        order = await self._uow.repository(Order).get(order_id)
        if order is None:
            raise LookupError(f"there is no order {order_id}")
        return order
