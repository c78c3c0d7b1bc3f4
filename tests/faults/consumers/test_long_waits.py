"""A key that waits for minutes outlasts no window of its broker, and keeps its order."""

from collections.abc import Callable

import pytest

from pillarbox import ConsumerConfig
from tests.faults.consumers.conftest import Town
from tests.faults.consumers.rig import Bank
from tests.faults.rig import side_by_side

LATER = "later"
WAITING = "later-1"
MEMBERS = 2
# With the time for which it was held in hand before, two minutes.
LONG = 112.0
# A window that was outlasted would bring messages again every few seconds; a late member does once.
CALLS = 2

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

_OTHERS = "SELECT count(*) FROM effect WHERE account LIKE %s AND account <> %s"
_WAITED_FOR = "SELECT count(*) FROM effect WHERE account = %s"


def test_a_key_waits_for_minutes_while_brokers_wait_for_seconds(
    town: Callable[[str], Town],
) -> None:
    held = ConsumerConfig().hold_limit
    banks = town("patience").open(consumers=["accounts"], hurried=1, hold_limit=held)
    side_by_side(lambda bank: bank.settle_in(MEMBERS), banks)
    moves = [bank.moves() for bank in banks]
    for bank in banks:
        bank.close_accounts([WAITING])
        bank.start_publisher(prefix=LATER, copies=0, rate=4)

    side_by_side(wait_long, banks)
    later = [bank.moves() for bank in banks]
    for bank in banks:
        assert bank.crew.ask(_WAITED_FOR, WAITING) == 0
        bank.open_accounts()
    for bank, before, now in zip(banks, moves, later, strict=True):
        bank.come_to_rest()
        bank.stop_members()
        report = bank.report(faults=None)
        bank.tell(f"{report}\npartitions moved {now - before} times")
        assert not report.violations, report
        assert most_calls(bank) <= CALLS, bank.calls()
    # Nobody is missed for holding a message; a member that is late for another reason may be.
    assert any(now == before for before, now in zip(moves, later, strict=True))


def most_calls(bank: Bank) -> int:
    """Return how often the handler was called for one message of those that did not wait."""
    calls = bank.calls().items()
    others = [n for place, n in calls if place[2].startswith(LATER) and not waits(place[2])]
    return max(others)


def waits(message_id: str) -> bool:
    return message_id.startswith(f"{WAITING}-")


def wait_long(bank: Bank) -> None:
    """Wait until a key has waited for minutes, and see the others go on all the while."""
    bank.crew.until(lambda: bank.waited() > 0, "the key is in the table")
    while bank.waited() < LONG:
        before = bank.crew.ask(_OTHERS, f"{LATER}-%", WAITING)
        bank.crew.until(
            lambda: bank.crew.ask(_OTHERS, f"{LATER}-%", WAITING) > before + 10,  # noqa: B023
            "the others go on",
        )
