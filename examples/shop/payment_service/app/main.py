"""The web process of the payment service: `python -m examples.shop.payment_service.app.main`."""

from decimal import Decimal
from typing import Annotated, Any

from fastapi import Depends
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from examples.shop.common.fields import Name
from examples.shop.common.web import serve, web_service
from examples.shop.payment_service.app.box import box
from examples.shop.payment_service.app.database import PaymentORM

app = web_service(box)


@app.get("/payments/{order_id}")
async def payments_of(
    order_id: Name, session: Annotated[AsyncSession, Depends(box.session)]
) -> list[dict[str, Any]]:
    """List an order's payments: one, whatever happened."""
    found = await session.scalars(select(PaymentORM).where(PaymentORM.order_id == order_id))
    return [{"amount": Decimal(each.amount), "status": each.status} for each in found]


if __name__ == "__main__":
    serve(app)
