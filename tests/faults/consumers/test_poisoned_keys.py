"""A key that fails again and again costs others no attempt, and less than one more call each."""

from collections.abc import Callable

import pytest

from tests.faults.consumers.conftest import Town
from tests.faults.consumers.rig import Bank
from tests.faults.rig import side_by_side

LATER = "later"
POISONED = "later-2"
DEPOSITS = 12
MEMBERS = 3
# A batch with a bad message is done once more: never more than twice for each of the others.
FACTOR = 2

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

_OTHERS = "SELECT count(*) FROM effect WHERE account <> %s"
_TRIED_AGAIN = "SELECT count(*) FROM effect WHERE account <> %s AND attempt > 1"
_OTHERS_WAITING = """
    SELECT count(*) FROM (
        SELECT message_id FROM inbox_parked UNION ALL SELECT message_id FROM inbox_attempt
    ) AS waiting WHERE message_id NOT LIKE %s || '-%%'"""


def test_a_poisoned_key_costs_others_no_attempt_and_few_calls(
    town: Callable[[str], Town],
) -> None:
    banks = town("poison").open(consumers=["accounts"], patient=1)
    side_by_side(lambda bank: bank.settle_in(MEMBERS, poisoned=POISONED), banks)
    moves = [bank.moves() for bank in banks]

    for bank in banks:
        bank.start_publisher(prefix=LATER, most=DEPOSITS, copies=0, rate=40)
    counted = []
    for bank, earlier in zip(banks, moves, strict=True):
        if others_go_on(bank, earlier):
            counted.append(bank.ground.name)
        bank.stop_members()
    assert counted, "on every broker partitions have moved, so that calls could not be counted"

    for bank in banks:
        bank.start_member()
    for bank in banks:
        bank.come_to_rest()
        bank.stop_members()
        # To stop all members and start another is what may have brought messages again.
        report = bank.report(MEMBERS)
        bank.tell(report)
        assert not report.violations, report


def others_go_on(bank: Bank, moves: int) -> bool:
    """Wait until every other deposit is in effect, and see what the bad ones did to them.

    Return whether the calls could be counted: a partition that went from a slow member to another
    has its messages tried by both.
    """
    bank.published_all()
    wanted = bank.published() - bank.published(f"{POISONED}-")
    bank.crew.until(lambda: bank.crew.ask(_OTHERS, POISONED) == wanted, f"{wanted} are in effect")

    assert bank.effects() == wanted
    assert bank.crew.ask(_TRIED_AGAIN, POISONED) == 0
    assert bank.crew.ask(_OTHERS_WAITING, POISONED) == 0
    calls = bank.calls()
    bad = sum(n for place, n in calls.items() if place[2].startswith(f"{POISONED}-"))
    assert bad > 0  # it was tried meanwhile
    if bank.moves() != moves:
        return False
    assert max(n for place, n in calls.items() if is_other(place[2])) <= FACTOR
    return True


def is_other(message_id: str) -> bool:
    return message_id.startswith(LATER) and not message_id.startswith(f"{POISONED}-")


def test_without_a_fault_nothing_is_handled_twice(town: Callable[[str], Town]) -> None:
    banks = town("calm").open(patient=1, hold_limit=10)
    side_by_side(lambda bank: bank.settle_in(MEMBERS), banks)
    before = [(bank.report(faults=None).duplicates, bank.moves()) for bank in banks]

    for bank in banks:
        bank.start_publisher(prefix=LATER, most=DEPOSITS, copies=0, rate=40)
    for bank in banks:
        bank.published_all()
        bank.come_to_rest()
    moves = [bank.moves() for bank in banks]

    for bank, (duplicates, earlier), later in zip(banks, before, moves, strict=True):
        bank.stop_members()
        report = bank.report(faults=None)
        bank.tell(f"{report}\npartitions moved {later - earlier} times")
        assert not report.violations, report
        # A member that was so slow that its partitions went to others is a fault.
        if later == earlier:
            assert report.duplicates == duplicates
            assert {n for place, n in bank.calls().items() if place[2].startswith(LATER)} == {1}
    assert any(later == earlier for (_, earlier), later in zip(before, moves, strict=True))
