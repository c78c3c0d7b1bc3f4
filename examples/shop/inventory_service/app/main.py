"""The web process of the inventory service: `python -m examples.shop.inventory_service.app.main`."""

from http import HTTPStatus
from typing import Annotated, Final

from fastapi import Depends, HTTPException
from pydantic import BaseModel, Field
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from examples.shop.common.fields import Name
from examples.shop.common.web import serve, web_service
from examples.shop.inventory_service.app.box import box
from examples.shop.inventory_service.app.database import Stock

app = web_service(box)
Session = Annotated[AsyncSession, Depends(box.session)]
MOST: Final = 1_000_000_000  # what is released comes on top, and the column holds twice as much


class StockLevel(BaseModel):
    available: int


class Counted(StockLevel):
    available: Annotated[int, Field(ge=0, le=MOST)]


@app.put("/stock/{product_id}")
async def set_stock(product_id: Name, level: Counted, session: Session) -> StockLevel:
    """Set what is there after counting: to set it twice is to set it once."""
    row = await _row(session, product_id)
    if row is None:
        session.add(Stock(product_id=product_id, available=level.available))
    else:
        row.available = level.available
    await session.commit()
    return level


@app.get("/stock/{product_id}")
async def get_stock(product_id: Name, session: Session) -> StockLevel:
    row = await _row(session, product_id)
    if row is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, f"there is no product {product_id}")
    return StockLevel(available=row.available)


async def _row(session: AsyncSession, product_id: str) -> Stock | None:
    return await session.scalar(select(Stock).where(Stock.product_id == product_id))


if __name__ == "__main__":
    serve(app)
