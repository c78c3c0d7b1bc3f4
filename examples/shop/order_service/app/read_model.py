"""The worker that keeps the view of orders, straight from the outbox: it needs no broker.

python -m examples.shop.order_service.app.read_model

It sees the events of all tenants, so it connects by the projector's role, like the projector.
"""

import asyncio

from examples.shop.common.worker import run_until_stopped
from examples.shop.order_service.app.box import box
from examples.shop.order_service.app.view import Orders

if __name__ == "__main__":
    asyncio.run(run_until_stopped(box, box.read_model(Orders, database=box.engine)))
