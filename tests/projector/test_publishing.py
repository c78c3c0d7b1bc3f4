"""A bus that raises, which it must not: who pays for it."""

import logging
from collections.abc import Callable, Sequence

import pytest

from pillarbox.bus.memory import MemoryMessageBus
from pillarbox.bus.outcome import ACCEPTED, PublishOutcome, Refused, Unknown
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.projector.publishing import outcomes_of
from pillarbox.projector.ready import Batch
from tests.projector.events import event

pytestmark = pytest.mark.usefixtures("quiet_log")


@pytest.fixture
def quiet_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="pillarbox.projector")


class Stumbling(MemoryMessageBus):
    """Raise over the second event."""

    def __init__(self, error: Callable[[], Exception]) -> None:
        super().__init__()
        self._error = error

    async def publish(
        self, batch: Sequence[MessageEnvelope], *, one_by_one: bool = False
    ) -> Sequence[PublishOutcome]:
        if any(envelope.event_id == "event-2" for envelope in batch):
            raise self._error()
        return await super().publish(batch, one_by_one=one_by_one)


EVENTS = [event(1, "a"), event(2, "b"), event(3, "c")]


async def test_a_batch_that_a_bus_stumbles_over_goes_one_by_one() -> None:
    outcomes = await outcomes_of(Stumbling(TypeError), Batch(EVENTS))

    assert [type(outcome) for outcome in outcomes] == [Refused] * 3
    assert not any(isinstance(outcome, Refused) and outcome.certain for outcome in outcomes)


async def test_one_by_one_only_the_event_is_refused_that_a_bus_stumbles_over() -> None:
    bus = Stumbling(lambda: ValueError("no such header"))

    first, second, third = await outcomes_of(bus, Batch(EVENTS, one_by_one=True))

    assert (first, third) == (ACCEPTED, ACCEPTED)
    assert second == Refused("bus-raised", "the bus raised ValueError: no such header")


@pytest.mark.parametrize("one_by_one", [False, True])
async def test_an_error_that_may_be_the_destinations_refuses_nobody(one_by_one: bool) -> None:
    outcomes = await outcomes_of(Stumbling(OSError), Batch(EVENTS, one_by_one=one_by_one))

    assert isinstance(outcomes[1], Unknown)
    assert not any(isinstance(outcome, Refused) for outcome in outcomes)
