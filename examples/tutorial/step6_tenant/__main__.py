"""Two tenants place an order under the same number, and look at what there is."""

import asyncio
import os
from collections.abc import Sequence
from uuid import uuid4

from sqlalchemy import text

from examples.tutorial.step6_tenant.broker import tenants_received
from examples.tutorial.step6_tenant.migrate import migrate
from examples.tutorial.step6_tenant.orders import place_order
from pillarbox import Pillarbox, tenant
from pillarbox.errors import TenantRequired

TOPIC = "market.order"


async def main() -> None:
    order_id = str(uuid4())
    url = migrate(os.environ["PILLARBOX_DATABASE_URL"])
    box = Pillarbox(url, service="market", environ={"PILLARBOX_TENANCY": "required"})
    async with box.running():
        with tenant("acme"):  # for example in a middleware, around the whole request
            await place_order(box, order_id, 10)
        with tenant("globex"):
            await place_order(box, order_id, 20)

        with tenant("acme"):
            print("acme sees", await totals(box, order_id))
        with tenant("globex"):
            print("globex sees", await totals(box, order_id))
        try:
            await place_order(box, order_id, 30)
        except TenantRequired as refused:
            print("without a tenant:", refused.code)

    await deliver()
    print("the broker has events of", *await tenants_received(TOPIC, order_id, 2))


async def totals(box: Pillarbox, order_id: str) -> Sequence[int]:
    """Ask for orders in SQL that names no tenant."""
    async with box.session_factory() as session:
        statement = text("SELECT total FROM tenant_orders WHERE id = :id")
        return (await session.scalars(statement, {"id": order_id})).all()


async def deliver() -> None:
    """Deliver the events of all tenants, as another role: the service may not read them."""
    operator = Pillarbox.from_env(service="market")
    async with operator.running():
        await operator.bus.apply([TOPIC])
        await operator.projector().drain()


if __name__ == "__main__":
    asyncio.run(main())
