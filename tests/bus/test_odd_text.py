"""Text that UTF-8 cannot hold: JSON can name it, so rows of other hands may have it."""

from collections.abc import AsyncIterator

import pytest

from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.outcome import Refused
from pillarbox.testing.contract.powers import structuring
from tests.bus.rig import Rig, ids, message, new_topic
from tests.bus.rigs import BROKERS, rig_for

LONE = "\ud800"


@pytest.fixture(params=BROKERS)
def rig(request: pytest.FixtureRequest) -> Rig:
    """Each broker in turn, on the servers that all tests share."""
    return rig_for(request.getfixturevalue(f"{request.param}_server"))


@pytest.fixture
async def bus(rig: Rig) -> AsyncIterator[MessageBus]:
    made = rig.bus()
    yield made
    await made.close()


@pytest.mark.parametrize("one_by_one", [False, True])
async def test_a_lone_surrogate_is_refused_and_costs_no_other_an_attempt(
    rig: Rig, bus: MessageBus, one_by_one: bool
) -> None:
    topic = new_topic()
    header, key = message(topic, 1, headers={"x": LONE}), message(topic, key=LONE)
    good = [message(topic, 2), message(topic, 3)]

    outcomes = await bus.publish([good[0], header, key, good[1]], one_by_one=one_by_one)

    assert isinstance(outcomes[1], Refused)
    assert not any(isinstance(outcome, Refused) for outcome in (outcomes[0], outcomes[3]))
    if one_by_one:
        assert isinstance(outcomes[2], Refused)
        assert set(ids(await rig.read(topic))) == set(ids(good))


async def test_a_lone_surrogate_in_structured_mode_is_refused(rig: Rig) -> None:
    bus = structuring(rig).structured_bus()

    [outcome] = await bus.publish([message(new_topic(), event_type=LONE)])
    await bus.close()

    assert isinstance(outcome, Refused)
    assert outcome.certain
