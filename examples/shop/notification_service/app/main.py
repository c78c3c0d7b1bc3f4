"""The web process of the notification service.

python -m examples.shop.notification_service.app.main
"""

from typing import Annotated, Any

from fastapi import Depends
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from examples.shop.common.fields import Name
from examples.shop.common.web import serve, web_service
from examples.shop.notification_service.app.box import box
from examples.shop.notification_service.app.database import Notification

app = web_service(box)


@app.get("/notifications/{order_id}")
async def notifications_of(
    order_id: Name, session: Annotated[AsyncSession, Depends(box.session)]
) -> list[dict[str, Any]]:
    """List what the customer was told about an order."""
    found = await session.scalars(
        select(Notification).where(Notification.order_id == order_id).order_by(Notification.id)
    )
    return [{"kind": each.kind, "user_id": each.user_id} for each in found]


if __name__ == "__main__":
    serve(app)
