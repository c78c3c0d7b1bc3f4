"""Ask a rig for a power; a test whose power the rig lacks is skipped with a sentence."""

from typing import NoReturn

import pytest

from pillarbox.testing.rig import (
    Binding,
    BusRig,
    ForbidsTopics,
    LosesAnswers,
    NamesBinding,
    RefusesMessages,
    StopsBroker,
    Structures,
    Unreachable,
)


def refusing(rig: BusRig) -> RefusesMessages:
    """Return a rig that can have a message refused."""
    return rig if isinstance(rig, RefusesMessages) else skip(rig, "cannot have a message refused")


def forbidding(rig: BusRig) -> ForbidsTopics:
    """Return a rig that can close a topic."""
    return rig if isinstance(rig, ForbidsTopics) else skip(rig, "cannot close a topic")


def losing(rig: BusRig) -> LosesAnswers:
    """Return a rig that can lose answers."""
    return rig if isinstance(rig, LosesAnswers) else skip(rig, "cannot lose an answer")


def unreachable(rig: BusRig) -> Unreachable:
    """Return a rig that makes a bus that nobody answers."""
    return rig if isinstance(rig, Unreachable) else skip(rig, "makes no bus that nobody answers")


def stopping(rig: BusRig) -> StopsBroker:
    """Return a rig that can kill and freeze its broker."""
    return rig if isinstance(rig, StopsBroker) else skip(rig, "cannot kill its broker")


def structuring(rig: BusRig) -> Structures:
    """Return a rig that makes a bus in structured mode."""
    return rig if isinstance(rig, Structures) else skip(rig, "makes no bus in structured mode")


def binding_of(rig: BusRig) -> Binding:
    """Return the binding by which the bus's CloudEvents are read."""
    return (
        rig.binding
        if isinstance(rig, NamesBinding)
        else skip(rig, "does not say how its CloudEvents are read")
    )


def skip(rig: BusRig, lacks: str) -> NoReturn:
    """Skip the test that asked."""
    pytest.skip(f"the rig of {rig.name} {lacks}")
