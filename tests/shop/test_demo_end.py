"""The exit code of the demo: 0 for books that are right, and 1 for all others."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from examples.demo import checker
from examples.demo.checker import Books
from examples.demo.customers import SHELVES, Accepted, Customers, Request
from examples.demo.plan import Plan
from examples.demo.run import Ground, _sum_up
from examples.demo.settings import Settings
from examples.demo.stage import Stage
from examples.demo.troubles import Troubles
from examples.demo.view import Screen
from tests.shop.test_checker import ACCEPTED
from tests.shop.test_checker import GOOD as TWO_ORDERS

NOTHING: Any = None
LEFT = {**SHELVES, ("acme", "lamp"): SHELVES["acme", "lamp"] - 2}
GOOD = replace(
    TWO_ORDERS,
    stock=[(*shelf, there) for shelf, there in LEFT.items()],
    first_event_at=108.7,
)
EMPTY = Books({}, {}, {}, [], Counter(), [], [(*at, n) for at, n in SHELVES.items()], [], [], 0, 0)
SETTINGS = Settings(seconds=30, database=None, bus=None, started_at=100.0)


def stage_after(
    accepted: Mapping[tuple[str, str], str], *, kills: int = 2, outages: int = 1
) -> Stage:
    """Return the stage as a run leaves it in which these orders were answered."""
    answered = [
        Accepted(Request(tenant, user, "", "", {}), order_id)
        for (tenant, order_id), user in accepted.items()
    ]
    customers = Customers(NOTHING, answered, repeated=29)
    troubles = Troubles(NOTHING, customers, NOTHING, 10, print, NOTHING, kills, outages, 20)
    return Stage("", {}, NOTHING, customers, troubles, Plan.of(30), Screen(), 0.0)


def exit_code(books: Books, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(checker, "read", lambda _: books)
    broker_of_its_own = cast("Any", object())
    return _sum_up(SETTINGS, Ground({}, "", broker_of_its_own, "", 0.0), stage)


def changed(**values: Any) -> Callable[[Books], Books]:
    return lambda books: replace(books, **values)


def test_a_run_that_left_good_books_ends_with_0_and_the_line_for_scripts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = exit_code(GOOD, stage_after(ACCEPTED), monkeypatch)

    assert code == 0
    assert capsys.readouterr().out == (
        "orders=2 events=7 delivered=7 effects=6 kills=2 outages=1 repeated_requests=29 "
        "repeated_messages=20 lost=0 duplicate_effects=0 out_of_order=0 "
        "seconds_to_first_event=8.7\n"
    )


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        pytest.param(changed(view={}), "lost=2", id="lost"),
        pytest.param(
            changed(payments=[*GOOD.payments, *GOOD.payments]), "duplicate_effects=1", id="double"
        ),
        pytest.param(
            changed(notices=[GOOD.notices[1], GOOD.notices[0], *GOOD.notices[2:]]),
            "out_of_order=1",
            id="out-of-order",
        ),
    ],
)
def test_a_run_that_left_spoiled_books_ends_with_1(
    spoil: Callable[[Books], Books],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = exit_code(spoil(GOOD), stage_after(ACCEPTED), monkeypatch)

    assert code == 1
    assert said in capsys.readouterr().out


def test_a_run_in_which_a_request_got_two_orders_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = stage_after(ACCEPTED)
    stage.customers.strange.append("key: o-1 and o-2")

    code = exit_code(GOOD, stage, monkeypatch)

    assert code == 1
    assert "duplicate_effects=1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("books", "stage", "said"),
    [
        pytest.param(EMPTY, stage_after({}), "orders=0", id="no-orders"),
        pytest.param(GOOD, stage_after(ACCEPTED, kills=0), "kills=0", id="no-kills"),
        pytest.param(GOOD, stage_after(ACCEPTED, outages=0), "outages=0", id="no-outages"),
    ],
)
def test_a_run_that_proves_nothing_ends_with_1(
    books: Books,
    stage: Stage,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = exit_code(books, stage, monkeypatch)

    assert code == 1
    assert said in capsys.readouterr().out
