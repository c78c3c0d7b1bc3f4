"""Reply, time-out and step race in every possible way, and each rule is needed."""

import pytest

from tests.saga.model import Budget, Variant, explore

FAULTS = {
    "none": Budget(),
    "two replies lost": Budget(lost=2),
    "a reply lost, another twice": Budget(lost=1, doubled=1),
    "two replies twice": Budget(doubled=2),
}
CAUGHT = {
    Variant.NO_LOCK: "outcome: reserve do was ok and became None",
    Variant.NO_CAUSE: "effects: COMPLETED with",
    Variant.NO_UNDO_OF_LATE: "effects: COMPENSATED with a reservation",
    Variant.NO_UNDO_OF_REPEATED: "effects: COMPENSATED with a reservation",
    Variant.NO_ORDER: "effects: COMPENSATED with a reservation",
}


@pytest.mark.parametrize("faults", FAULTS)
def test_a_step_has_one_outcome_and_effects_fit_the_end_in_every_reachable_state(
    faults: str,
) -> None:
    states, violation = explore(FAULTS[faults])

    assert violation is None
    assert states > 150


@pytest.mark.parametrize("variant", Variant)
def test_a_protocol_without_one_of_its_rules_is_caught(variant: Variant) -> None:
    _, violation = explore(Budget(doubled=1), variant)

    assert violation is not None
    assert violation.what.startswith(CAUGHT[variant]), violation
