"""The protocol of the projector holds in every reachable state; each rule is needed."""

import pytest

from tests.projector.model import Budget, Variant, explore

FAULTS = {
    "none": Budget(),
    "a crash and a lease lost": Budget(crashes=1, expiries=1),
    "a crash and a refusal": Budget(crashes=1, refusals=1),
    "a lease lost and an answer lost": Budget(expiries=1, lost_acks=1),
    "refusals up to DEAD": Budget(refusals=2),
    "a database that loses its tail": Budget(crashes=1, database_crashes=1),
    "a crash and an answer lost": Budget(crashes=1, lost_acks=1),
    "an answer lost and a refusal": Budget(lost_acks=1, refusals=1),
    "two leases lost": Budget(expiries=2),
    "two crashes": Budget(crashes=2),
}
# One event of a key at a time, and together. Another number is another protocol: look before changing it.
REACHABLE = {
    "none": (307, 320),
    "a crash and a lease lost": (158_274, 225_782),
    "a crash and a refusal": (19_624, 23_455),
    "a lease lost and an answer lost": (41_392, 54_259),
    "refusals up to DEAD": (1_964, 2_062),
    "a database that loses its tail": (6_376, 7_159),
    "a crash and an answer lost": (13_613, 18_111),
    "an answer lost and a refusal": (4_619, 5_288),
    "two leases lost": (29_871, 36_010),
    "two crashes": (36_419, 56_562),
}
CAUGHT = {
    Variant.NO_KEY_GUARD: (Budget(refusals=1), "order: a2 was published before a1"),
    Variant.GOES_ON_AFTER_FAILURE: (Budget(lost_acks=1), "order: a2 was published before a1"),
    Variant.MARK_BEFORE_PUBLISH: (Budget(), "loss: b is SENT and was never published"),
    Variant.NO_FENCE: (Budget(expiries=1), "fence: 0 settled b under a lease that it had lost"),
    Variant.CLAIM_BEFORE_READ: (Budget(database_crashes=1), "ghost: b was published"),
    Variant.CLAIMS_OVER_NEW_CONNECTION: (Budget(database_crashes=1), "ghost: b was published"),
    Variant.FORGETS_LATE_COMMITS: (Budget(), "loss: b waits for ever"),
    Variant.STORES_BEHIND_A_GAP: (Budget(lost_acks=1), "order: a2 was published before a1"),
}


@pytest.mark.parametrize("together", [False, True], ids=["one by one", "together"])
@pytest.mark.parametrize("faults", FAULTS)
def test_order_and_no_loss_hold_in_every_reachable_state(faults: str, together: bool) -> None:
    states, violation = explore(FAULTS[faults], together=together)

    assert violation is None
    assert states == REACHABLE[faults][together]


@pytest.mark.parametrize("variant", Variant)
def test_a_protocol_without_one_of_its_rules_is_caught(variant: Variant) -> None:
    budget, what = CAUGHT[variant]
    together = variant is Variant.STORES_BEHIND_A_GAP

    _, violation = explore(budget, variant, together=together)

    assert violation is not None
    assert violation.what.startswith(what)
