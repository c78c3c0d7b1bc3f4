"""Hold a bus or a subscription to its contract; and what the fixture `pillarbox` gives a test.

It imports pytest, and its tests run through pytest-asyncio: `pip install 'pillarbox[testing]'`.
"""

try:
    import pytest
    import pytest_asyncio  # noqa: F401 - the tests need it, and here its absence can be told
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"pillarbox.testing needs {missing.name}; run `pip install 'pillarbox[testing]'`",
        name=missing.name,
    ) from missing

# Before the import below, so that a failed assertion shows what it compared.
pytest.register_assert_rewrite("pillarbox.testing.contract", "pillarbox.testing.subscription")

from pillarbox.testing.contract import BusContract, BusOutageContract
from pillarbox.testing.fixture.bus import FaultyBus
from pillarbox.testing.fixture.clock import MovableClock
from pillarbox.testing.fixture.connection import rolled_back
from pillarbox.testing.fixture.delivering import Delivery
from pillarbox.testing.fixture.recorded import RecordedEvent
from pillarbox.testing.fixture.under_test import BoxUnderTest, OutboxUnderTest, under_test
from pillarbox.testing.messages import ids, kinds, message, new_topic
from pillarbox.testing.rig import (
    Binding,
    BusRig,
    ForbidsTopics,
    Line,
    LosesAnswers,
    NamesBinding,
    RefusesMessages,
    StopsBroker,
    Stored,
    Structures,
    Unreachable,
)
from pillarbox.testing.subscription import SubscriptionContract, SubscriptionOutageContract
from pillarbox.testing.subscription.rig import (
    CutsMembers,
    Hurries,
    MemberLine,
    NobodyThere,
    PublishesRaw,
    RawMessage,
    Rewinds,
    SubscriptionRig,
)

__all__ = [
    "Binding",
    "BoxUnderTest",
    "BusContract",
    "BusOutageContract",
    "BusRig",
    "CutsMembers",
    "Delivery",
    "FaultyBus",
    "ForbidsTopics",
    "Hurries",
    "Line",
    "LosesAnswers",
    "MemberLine",
    "MovableClock",
    "NamesBinding",
    "NobodyThere",
    "OutboxUnderTest",
    "PublishesRaw",
    "RawMessage",
    "RecordedEvent",
    "RefusesMessages",
    "Rewinds",
    "StopsBroker",
    "Stored",
    "Structures",
    "SubscriptionContract",
    "SubscriptionOutageContract",
    "SubscriptionRig",
    "Unreachable",
    "ids",
    "kinds",
    "message",
    "new_topic",
    "rolled_back",
    "under_test",
]
