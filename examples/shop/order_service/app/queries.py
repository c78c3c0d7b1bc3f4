"""The query side: query → handler → `ReadDAO` → read model."""

from dataclasses import dataclass
from decimal import Decimal

from pillarbox import ReadDAO


@dataclass(frozen=True)
class GetOrder:
    order_id: str


@dataclass(frozen=True)
class OrderSummary:
    order_id: str
    user_id: str
    total_amount: Decimal
    status: str
    reason: str | None


class GetOrderHandler:
    """Answer from the read model; the tables that commands write are none of its business."""

    def __init__(self, orders: ReadDAO) -> None:
        self._orders = orders

    async def handle(self, query: GetOrder) -> OrderSummary | None:
        row = await self._orders.get(query.order_id)
        if row is None:
            return None
        return OrderSummary(
            row["order_id"], row["user_id"], row["total_amount"], row["status"], row["reason"]
        )
