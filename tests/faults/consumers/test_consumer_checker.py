"""The checker of consumers can fail: each invariant is broken by hand and found."""

import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.faults.consumers.checker import check, trail
from tests.faults.consumers.history import Account, Deposit, Effect, History, Leftover

CONSUMERS = ("c1", "c2")
TENANTS = ("t1", "t2")
AMOUNTS = (10, 20, 30)


def effect(consumer: str, tenant: str, n: int, balance: int, attempt: int = 1) -> Effect:
    return Effect(consumer, tenant, "a", n, f"a-{n}", balance, attempt, "m0")


def history_of(*effects: Effect) -> History:
    """Return a history with these effects, and with accounts and an inbox that fit them."""
    accounts: dict[tuple[str, str, str], Account] = {}
    for done in effects:
        holder = (done.consumer, done.tenant, done.account)
        ids = [e.message_id for e in effects if (e.consumer, e.tenant, e.account) == holder]
        accounts[holder] = Account(done.balance, trail(ids))
    places = [(done.consumer, done.tenant, done.message_id) for done in effects]
    return History(
        consumers=CONSUMERS,
        published=[
            Deposit(tenant, "a", n, f"a-{n}", amount)
            for tenant in TENANTS
            for n, amount in enumerate(AMOUNTS, 1)
        ],
        effects=effects,
        accounts=accounts,
        inbox=Counter(set(places)),
        calls=Counter(places),
        faults=0,
    )


GOOD = tuple(
    effect(consumer, tenant, n, sum(AMOUNTS[:n]))
    for consumer in CONSUMERS
    for tenant in TENANTS
    for n in (1, 2, 3)
)


def broken(history: History) -> set[str]:
    return {found.invariant for found in check(history).violations}


def without(*numbers: int) -> Sequence[Effect]:
    """Return the good effects without some of the first consumer's and tenant's."""
    return [done for at, done in enumerate(GOOD, 1) if at not in numbers]


def test_a_good_history_breaks_nothing() -> None:
    report = check(history_of(*GOOD))

    assert report.violations == []
    assert str(report).endswith("no violation")


def test_an_effect_twice_is_found() -> None:
    assert "I5" in broken(history_of(*GOOD, effect("c2", "t2", 3, 90)))


def test_an_effect_twice_is_found_by_the_balance_alone() -> None:
    good = history_of(*GOOD)
    paid_twice = {("c1", "t1", "a"): Account(90, trail(["a-1", "a-2", "a-3"]))}

    assert broken(replace(good, accounts={**good.accounts, **paid_twice})) == {"I5"}


def test_a_lost_effect_is_found() -> None:
    assert "I5" in broken(history_of(*without(3)))


def test_an_effect_that_nobody_published_is_found() -> None:
    assert "I5" in broken(history_of(*GOOD, effect("c1", "t1", 4, 70)))


def test_an_effect_without_its_row_in_the_inbox_is_found() -> None:
    good = history_of(*GOOD)
    inbox = {place: 1 for place in good.inbox if place != ("c1", "t1", "a-2")}

    assert broken(replace(good, inbox=inbox)) == {"I5"}


def test_a_row_in_the_inbox_without_its_effect_is_found() -> None:
    good = history_of(*GOOD)

    assert broken(replace(good, inbox={**good.inbox, ("c1", "t1", "a-9"): 1})) == {"I5"}


def test_effects_out_of_order_are_found() -> None:
    swapped = (effect("c1", "t1", 2, 20), effect("c1", "t1", 1, 30))

    assert broken(history_of(*swapped, *GOOD[2:])) == {"I6"}


def test_a_running_balance_that_jumped_is_found() -> None:
    jumped = (effect("c1", "t1", 1, 10), effect("c1", "t1", 2, 20))

    assert broken(history_of(*jumped, *GOOD[2:])) == {"I6"}


def test_a_trail_that_was_written_by_somebody_else_is_found() -> None:
    good = history_of(*GOOD)
    other = {("c1", "t1", "a"): Account(60, trail(["a-2", "a-1", "a-3"]))}

    assert broken(replace(good, accounts={**good.accounts, **other})) == {"I6"}


@pytest.mark.parametrize("table", ["inbox_parked", "inbox_attempt", "inbox_task"])
def test_a_row_that_is_left_behind_is_found(table: str) -> None:
    left = Leftover(table, "c1", "t1", "a-2", "waiting")

    assert broken(replace(history_of(*GOOD), leftovers=[left])) == {"I13"}


def test_an_attempt_at_a_message_in_effect_may_be_left_by_a_fault() -> None:
    left = [Leftover("inbox_attempt", "c1", "t1", "a-2", "1 started, 0 failed")]
    good = replace(history_of(*GOOD), leftovers=left, faults=1)

    assert broken(good) == set()
    assert "I13" in broken(replace(good, inbox={}))


def test_a_parked_message_that_is_lost_is_found() -> None:
    left = Leftover("inbox_parked", "c1", "t1", "a-3", "parked")

    assert {"I5", "I13"} <= broken(replace(history_of(*without(3)), leftovers=[left]))


def test_a_second_call_without_a_fault_is_found() -> None:
    good = history_of(*GOOD)
    twice = {**good.calls, ("c1", "t1", "a-1"): 2}

    assert broken(replace(good, calls=twice)) == {"I14"}
    assert broken(replace(good, calls=twice, faults=1)) == set()


def test_more_calls_than_faults_explain_are_found() -> None:
    good = history_of(*GOOD)
    many = {**good.calls, ("c1", "t1", "a-1"): 7}

    assert broken(replace(good, calls=many, faults=1)) == {"I14"}


def test_a_duplicate_without_a_fault_is_found() -> None:
    assert broken(replace(history_of(*GOOD), duplicates=1)) == {"I14"}
    assert broken(replace(history_of(*GOOD), duplicates=1, faults=1)) == set()


@pytest.mark.parametrize("taken", [("c1", "t2"), ("c2", "t1")], ids=["tenant", "consumer"])
def test_an_id_that_one_took_from_another_is_found(taken: tuple[str, str]) -> None:
    rest = [done for done in GOOD if (done.consumer, done.tenant) != taken]

    assert "I18" in broken(history_of(*rest))


def test_the_checker_imports_nothing_of_the_product() -> None:
    script = (
        "import sys, tests.faults.consumers.checker; "
        "sys.exit(any(name.partition('.')[0] == 'pillarbox' for name in sys.modules))"
    )

    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
