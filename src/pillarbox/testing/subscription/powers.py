"""Ask a rig for a power; a test whose power the rig lacks is skipped with a sentence."""

from typing import NoReturn

import pytest

from pillarbox.testing.rig import StopsBroker
from pillarbox.testing.subscription.rig import (
    CutsMembers,
    Hurries,
    NobodyThere,
    PublishesRaw,
    Rewinds,
    SubscriptionRig,
)


def raw_publishing(rig: SubscriptionRig) -> PublishesRaw:
    """Return a rig that publishes as a stranger."""
    return rig if isinstance(rig, PublishesRaw) else skip(rig, "publishes nothing as a stranger")


def rewinding(rig: SubscriptionRig) -> Rewinds:
    """Return a rig that puts a consumer back."""
    return rig if isinstance(rig, Rewinds) else skip(rig, "cannot put a consumer back")


def hurrying(rig: SubscriptionRig) -> Hurries:
    """Return a rig whose broker can be impatient."""
    return rig if isinstance(rig, Hurries) else skip(rig, "has a broker that is never impatient")


def cutting(rig: SubscriptionRig) -> CutsMembers:
    """Return a rig that cuts off a member."""
    return rig if isinstance(rig, CutsMembers) else skip(rig, "cannot cut off a member")


def nobody_there(rig: SubscriptionRig) -> NobodyThere:
    """Return a rig that makes a member that nobody answers."""
    return rig if isinstance(rig, NobodyThere) else skip(rig, "makes no member in the void")


def stopping(rig: SubscriptionRig) -> StopsBroker:
    """Return a rig that can kill and freeze its broker."""
    return rig if isinstance(rig, StopsBroker) else skip(rig, "cannot kill its broker")


def skip(rig: SubscriptionRig, lacks: str) -> NoReturn:
    """Skip the test that asked."""
    pytest.skip(f"the rig of {rig.name} {lacks}")
