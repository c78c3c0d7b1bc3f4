"""The worker that delivers the payment service's events.

python -m examples.shop.payment_service.app.projector
"""

import asyncio

from examples.shop.common.worker import publish_outbox_messages
from examples.shop.payment_service.app.box import box

if __name__ == "__main__":
    asyncio.run(publish_outbox_messages(box))
