"""Hold a bus to the contract: tests for subclassing, and what they need of a broker.

It imports pytest, and its tests run through pytest-asyncio.
"""

import pytest

# Before the import below, so that a failed assertion shows what it compared.
pytest.register_assert_rewrite("pillarbox.testing.contract")

from pillarbox.testing.contract import BusContract, BusOutageContract
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

__all__ = [
    "Binding",
    "BusContract",
    "BusOutageContract",
    "BusRig",
    "ForbidsTopics",
    "Line",
    "LosesAnswers",
    "NamesBinding",
    "RefusesMessages",
    "StopsBroker",
    "Stored",
    "Structures",
    "Unreachable",
    "ids",
    "kinds",
    "message",
    "new_topic",
]
