"""What the demo shows, plans and says at its end."""

import io
from dataclasses import replace
from typing import Any

import pytest

from examples.demo.checker import Findings, Result
from examples.demo.figures import Figures, Orders, Outbox
from examples.demo.plan import Plan
from examples.demo.settings import Settings
from examples.demo.summary import Done, complaints, last_line
from examples.demo.view import Process, Rates, Scene, Screen, one_line, picture
from pillarbox.errors import InvalidConfig

FIGURES = Figures(
    orders={"acme": Orders(10, 7, 1)},
    outboxes={"orders": Outbox(20, 15, 2.5)},
    reservations=8,
    payments=7,
    notices=18,
    mails=8,
)
SCENE = Scene(
    seconds=65,
    figures=FIGURES,
    order_rate=5,
    event_rate=20,
    processes=[Process("orders web", True, 0), Process("orders projector", False, 1)],
    broker="NATS (up)",
    notes=["00:10  killed something"],
    urls=["open http://localhost"],
    keys="[q] end",
)
GOOD = Result(10, 20, 20, 33, Findings(), 0.0)
DONE = Done(2, 1, 29, 20, outage_possible=True)


def test_the_picture_has_tenants_services_processes_notes_and_keys() -> None:
    text = "\n".join(picture(SCENE))

    assert "01:05" in text
    assert "acme                   10        2          7         1" in text
    assert "orders                 20        5         15     2.5 s" in text
    assert "orders          web, projector DOWN (killed 1x)" in text
    assert all(part in text for part in ("killed something", "http://localhost", "[q] end"))


def test_one_line_says_rates_what_waits_and_effects() -> None:
    assert one_line(SCENE) == (
        "10 orders (5/s), 20 events (20/s), 15 delivered, 5 waiting, oldest 2.5 s, 33 effects"
    )


def test_outside_a_terminal_a_line_comes_every_few_seconds_and_nothing_is_redrawn() -> None:
    screen = Screen(out=io.StringIO())
    screen.begin()

    screen.show(SCENE)
    screen.show(SCENE)

    assert isinstance(screen.out, io.StringIO)
    assert screen.out.getvalue().count("\n") == 1
    assert "\x1b" not in screen.out.getvalue()


def test_rates_are_those_of_the_last_seconds() -> None:
    rates = Rates()
    rates.of(0.0, Figures())
    rates.of(3.0, Figures())

    orders, events = rates.of(6.0, FIGURES)
    assert orders == pytest.approx(10 / 3)
    assert events == pytest.approx(15 / 3)


def test_in_thirty_seconds_the_broker_is_away_for_ten_and_a_third_is_kept_for_the_end() -> None:
    plan = Plan.of(30)

    assert (plan.outage, plan.pause) == (10.0, 0.75)
    assert plan.order_seconds(12.0) == pytest.approx(7.5)
    assert plan.order_seconds(25.0) == 0


def test_without_a_limit_the_broker_is_away_for_ten_seconds_and_orders_go_on() -> None:
    assert (Plan.of(None).outage, Plan.of(None).order_seconds(100.0)) == (10.0, None)


@pytest.mark.parametrize("value", ["soon", "5"])
def test_a_time_that_cannot_be_is_refused_by_name(value: str) -> None:
    with pytest.raises(InvalidConfig, match=r"PILLARBOX_DEMO_SECONDS"):
        Settings.of({"PILLARBOX_DEMO_SECONDS": value})


def test_a_flow_that_is_unknown_is_refused_by_name() -> None:
    with pytest.raises(InvalidConfig, match=r"PILLARBOX_DEMO_FLOW.*choreography, saga"):
        Settings.of({"PILLARBOX_DEMO_FLOW": "chaos"})


def test_the_last_line_has_every_figure() -> None:
    assert last_line(GOOD, DONE, 7.25) == (
        "orders=10 events=20 delivered=20 effects=33 kills=2 outages=1 repeated_requests=29 "
        "repeated_messages=20 lost=0 duplicate_effects=0 out_of_order=0 seconds_to_first_event=7.2"
    )
    assert list(complaints(GOOD, DONE)) == []


@pytest.mark.parametrize("name", ["kills", "outages"])
def test_a_run_in_which_nothing_was_broken_is_no_success(name: str) -> None:
    nothing: dict[str, Any] = {name: 0}

    assert list(complaints(GOOD, replace(DONE, **nothing))) == [
        f"there were no {name}, so this run proves nothing"
    ]


@pytest.mark.parametrize("name", ["orders", "effects"])
def test_a_run_in_which_nothing_happened_is_no_success(name: str) -> None:
    nothing: dict[str, Any] = {name: 0}

    assert list(complaints(replace(GOOD, **nothing), DONE)) == [
        f"there were no {name}, so this run proves nothing"
    ]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Findings(lost=["order 1: still CREATED"]), "lost: order 1: still CREATED"),
        (Findings(twice=["order 1: charged 2 times"]), "twice: order 1: charged 2 times"),
        (Findings(unordered=["order 1: too late"]), "order: order 1: too late"),
    ],
    ids=["lost", "duplicate-effects", "out-of-order"],
)
def test_whatever_is_found_is_no_success(found: Findings, said: str) -> None:
    assert list(complaints(replace(GOOD, findings=found), DONE)) == [said]


def test_a_broker_that_is_not_the_demos_own_need_not_have_been_stopped() -> None:
    assert not list(complaints(GOOD, Done(2, 0, 1, 1, outage_possible=False)))


def test_what_is_wrong_is_said_and_cut_short() -> None:
    found = Findings(lost=[f"order {n}" for n in range(8)])

    said = list(complaints(Result(10, 20, 20, 33, found, 0.0), DONE))

    assert said[0] == "lost: order 0"
    assert said[-1] == "lost: 3 more"
