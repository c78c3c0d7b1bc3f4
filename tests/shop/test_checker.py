"""The demo's checker notices what is wrong, and knows nothing of the product."""

import ast
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from examples.demo import checker
from examples.demo.checker import Books, check

STOCK = {("acme", "lamp"): 10}
CONFIRMED, REJECTED = ("acme", "o-1"), ("acme", "o-2")
ACCEPTED = {CONFIRMED: "ada", REJECTED: "bob"}
EVENTS = [
    ("acme", "e-1", "OrderCreated", "SENT"),
    ("acme", "e-2", "InventoryReserved", "SENT"),
    ("acme", "e-3", "PaymentProcessed", "SENT"),
    ("acme", "e-4", "OrderConfirmed", "SENT"),
    ("acme", "e-5", "OrderCreated", "SENT"),
    ("acme", "e-6", "OutOfStock", "SENT"),
    ("acme", "e-7", "OrderRejected", "SENT"),
]
GOOD = Books(
    orders={CONFIRMED: "CONFIRMED", REJECTED: "REJECTED"},
    buyers=ACCEPTED,
    view={CONFIRMED: "CONFIRMED", REJECTED: "REJECTED"},
    events=[*EVENTS],
    inbox=Counter(
        (tenant, consumer, event_id)
        for tenant, event_id, kind, _ in EVENTS
        for consumer in checker.RECEIVERS[kind]
    ),
    reserved=[(*CONFIRMED, "lamp", 2, "RESERVED")],
    stock=[("acme", "lamp", 8)],
    payments=[(*CONFIRMED, "PROCESSED")],
    notices=[
        (*CONFIRMED, "OrderCreated", 1),
        (*CONFIRMED, "OrderConfirmed", 2),
        (*REJECTED, "OrderCreated", 1),
        (*REJECTED, "OrderRejected", 2),
    ],
    mails=2,
    first_event_at=0.0,
)


def test_orders_that_ended_once_are_counted_and_nothing_is_found() -> None:
    result = check(GOOD, ACCEPTED, STOCK)

    assert result.findings == checker.Findings()
    assert (result.orders, result.events, result.delivered, result.effects) == (2, 7, 7, 6)


def without(name: str) -> Callable[[Books], Books]:
    return changed(**{name: getattr(GOOD, name)[:-1]})


def twice(name: str) -> Callable[[Books], Books]:
    return changed(**{name: [*getattr(GOOD, name), getattr(GOOD, name)[-1]]})


def changed(**values: Any) -> Callable[[Books], Books]:
    return lambda books: replace(books, **values)


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(changed(orders={}, buyers={}), id="accepted-orders-are-gone"),
        pytest.param(changed(inbox=Counter()), id="no-event-was-taken-in"),
        pytest.param(
            changed(events=[*EVENTS[:-1], ("acme", "e-7", "OrderRejected", "NEW")]), id="unsent"
        ),
        pytest.param(changed(view={}), id="the-view-is-empty"),
        pytest.param(without("payments"), id="a-payment-is-missing"),
        pytest.param(without("reserved"), id="a-reservation-is-missing"),
        pytest.param(without("notices"), id="a-customer-was-not-told"),
        pytest.param(changed(mails=1), id="a-mail-is-missing"),
        pytest.param(changed(stock=[("acme", "lamp", 9)]), id="promised-and-not-taken"),
    ],
)
def test_what_is_lost_is_noticed(spoil: Callable[[Books], Books]) -> None:
    assert check(spoil(GOOD), ACCEPTED, STOCK).findings.lost


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(twice("payments"), id="charged-twice"),
        pytest.param(twice("reserved"), id="reserved-twice"),
        pytest.param(twice("notices"), id="told-twice"),
        pytest.param(changed(mails=3), id="a-mail-too-many"),
        pytest.param(changed(stock=[("acme", "lamp", 7)]), id="taken-for-nobody"),
        pytest.param(changed(stock=[]), id="a-shelf-is-gone"),
    ],
)
def test_what_happened_twice_is_noticed(spoil: Callable[[Books], Books]) -> None:
    assert check(spoil(GOOD), ACCEPTED, STOCK).findings.twice


def test_a_second_order_for_one_request_is_noticed_and_that_of_a_visitor_is_not() -> None:
    told_of_one = {CONFIRMED: "ada"}

    second = check(replace(GOOD, buyers=dict.fromkeys(GOOD.orders, "ada")), told_of_one, STOCK)
    visitor = check(GOOD, told_of_one, STOCK)

    assert second.findings.twice
    assert visitor.findings == checker.Findings()


@pytest.mark.parametrize("shelf", [("acme", "sofa"), ("main", "lamp")])
def test_what_a_visitor_put_on_a_shelf_of_their_own_is_not_compared(shelf: tuple[str, str]) -> None:
    result = check(replace(GOOD, stock=[*GOOD.stock, (*shelf, 3)]), ACCEPTED, STOCK)

    assert result.findings == checker.Findings()


def test_an_event_that_came_after_a_later_one_is_noticed() -> None:
    swapped = [GOOD.notices[1], GOOD.notices[0], *GOOD.notices[2:]]

    result = check(replace(GOOD, notices=swapped), ACCEPTED, STOCK)

    assert len(result.findings.unordered) == 1


def test_the_checker_imports_nothing_of_the_product() -> None:
    tree = ast.parse(Path(checker.__file__).read_text("utf-8"))
    names = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    } | {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}

    assert {name.partition(".")[0] for name in names} == {
        "collections",
        "dataclasses",
        "psycopg",
        "typing",
    }
