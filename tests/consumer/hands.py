"""Messages in hand, made without a broker."""

from pillarbox.bus.subscription import Delivery
from pillarbox.consumer.context import Context
from pillarbox.consumer.lane import InHand, in_hand
from pillarbox.consumer.routes import Prepared
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.event.incoming import Incoming


async def _nothing(context: Context) -> None:
    del context


def item(
    number: int, key: str | None = "k", *, tenant: str = "acme", partition: str = "p"
) -> InHand:
    """Return message number so-and-so of a key."""
    envelope = MessageEnvelope(
        event_id=f"m{number}", event_type="Counted", key=key, tenant_id=tenant
    )
    delivery = Delivery(Incoming("topic", key, {}, None), partition, str(number), False, number)
    return in_hand(delivery, Prepared(envelope, _nothing))


def positions(items: list[InHand]) -> list[int]:
    return [int(found.delivery.position) for found in items]
