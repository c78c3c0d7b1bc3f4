"""What the tests of the contract share."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Final

import pytest
import pytest_asyncio

from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.outcome import Accepted, PublishOutcome, Refused, Unavailable
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.testing.messages import ids, message
from pillarbox.testing.rig import BusRig

SHORT: Final = timedelta(seconds=3)
SLACK: Final = 0.5  # for a busy machine
RECOVERY: Final = 60.0
_PAUSE: Final = 0.05


class BusCase:
    """A bus that is closed when its test ends."""

    pytestmark = pytest.mark.asyncio

    @pytest_asyncio.fixture
    async def bus(self, rig: BusRig) -> AsyncIterator[MessageBus]:
        """A bus that has not started."""
        made = rig.bus()
        yield made
        await made.close()

    @pytest_asyncio.fixture
    async def hurried(self, rig: BusRig) -> AsyncIterator[MessageBus]:
        """A bus with a short limit, that has not started."""
        made = rig.bus(limit=SHORT)
        yield made
        await made.close()


def accepted(
    batch: Sequence[MessageEnvelope], outcomes: Sequence[PublishOutcome]
) -> list[MessageEnvelope]:
    """Return the messages of a batch that were accepted."""
    answers = zip(batch, outcomes, strict=True)
    return [sent for sent, outcome in answers if isinstance(outcome, Accepted)]


def blamed(outcome: PublishOutcome) -> bool:
    """Tell whether a message was refused for certain, which counts as an attempt."""
    return isinstance(outcome, Refused) and outcome.certain


async def accepted_again(bus: MessageBus, topic: str) -> None:
    """Wait until a topic takes messages, as the projector does."""
    try:
        async with asyncio.timeout(RECOVERY):
            while not isinstance((await bus.publish([message(topic)]))[0], Accepted):  # noqa: ASYNC110 - a server, no task
                await asyncio.sleep(_PAUSE)
    except TimeoutError:
        pytest.fail(f"no message was accepted again within {RECOVERY:.0f} s")


async def assert_said_what_is_stored(
    rig: BusRig,
    topic: str,
    batches: Sequence[Sequence[MessageEnvelope]],
    outcomes: Sequence[Sequence[PublishOutcome]],
) -> None:
    """Hold a bus to its words: what it accepted is stored, what it refused or could not take is not."""
    stored = set(ids(await rig.read(topic)))
    for batch, said in zip(batches, outcomes, strict=True):
        assert set(ids(accepted(batch, said))) <= stored
        answers = zip(batch, said, strict=True)
        untaken = [sent for sent, outcome in answers if isinstance(outcome, Refused | Unavailable)]
        assert not stored.intersection(ids(untaken))
