"""Ask a bus for the outcomes of a batch, whatever it does."""

import logging
from collections.abc import Sequence
from typing import Final

from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.outcome import PublishOutcome, Refused, Unknown
from pillarbox.projector.ready import Batch

log = logging.getLogger("pillarbox.projector")

# What code raises that stumbles over a message; anything else may be the destination's.
_OF_A_MESSAGE: Final = (TypeError, ValueError, LookupError, AttributeError)


async def outcomes_of(bus: MessageBus, batch: Batch) -> Sequence[PublishOutcome]:
    """Publish a batch; a bus that raises, which it must not, costs nobody else a delivery.

    An error that a message can cause refuses it, alone in the end; after any other nothing is known.
    """
    envelopes = [event.envelope for event in batch.events]
    try:
        return await bus.publish(envelopes, one_by_one=batch.one_by_one)
    except Exception as error:
        log.exception("bus_raised", extra={"events": len(envelopes)})
        if batch.one_by_one and len(envelopes) > 1:
            alone = [Batch([event], one_by_one=True) for event in batch.events]
            return [(await outcomes_of(bus, one))[0] for one in alone]
        return [_outcome(error, alone=batch.one_by_one)] * len(envelopes)


def _outcome(error: Exception, *, alone: bool) -> PublishOutcome:
    said = f"the bus raised {type(error).__name__}: {error}"
    if isinstance(error, _OF_A_MESSAGE):
        return Refused("bus-raised", said, certain=alone)
    return Unknown("bus-raised", said)
