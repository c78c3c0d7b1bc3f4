"""A stand-in for a mail provider: like the real ones it sends once for each idempotency key."""

from sqlalchemy.dialects.postgresql import insert

from examples.shop.notification_service.app.box import box
from examples.shop.notification_service.app.database import Mail
from pillarbox import tenant


async def send(tenant_id: str, recipient: str, subject: str, *, idempotency_key: str) -> None:
    """Send a mail, unless one was sent under this key before; in a transaction of its own."""
    new = insert(Mail).values(
        tenant_id=tenant_id, key=idempotency_key, recipient=recipient, subject=subject, calls=1
    )
    again = new.on_conflict_do_update(
        index_elements=[Mail.tenant_id, Mail.key], set_={"calls": Mail.calls + 1}
    )
    with tenant(tenant_id):
        async with box.session_factory() as session:
            await session.execute(again)
            await session.commit()
