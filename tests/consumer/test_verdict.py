"""What becomes of a message after each kind of try."""

import random
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox.consumer.verdict import (
    Applied,
    AskedToPark,
    AskedToWait,
    Crashed,
    Dropped,
    End,
    Failed,
    Finish,
    Follow,
    GiveUp,
    Hold,
    KeyHeld,
    Repeated,
    Return,
    Rules,
    SetAside,
    Suspected,
    Untouched,
    Verdict,
    Wait,
    judge,
)
from pillarbox.retry import RetryPolicy

RULES = Rules(RetryPolicy(attempts=5, delay=1.0, delay_max=300.0), hold_limit=10.0)
FAILED = Failed("ValueError", "in this test")


def verdict(end: End, attempt: int = 1, held_for: float = 0.0) -> Verdict:
    return judge(
        end, attempt=attempt, held_for=held_for, rules=RULES, chance=random.Random(attempt)
    )


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (Applied(), Finish("new")),
        (Repeated(), Finish("duplicate")),
        (Dropped("not ours"), Finish("dropped")),
        (KeyHeld(), Follow()),
        (Crashed(), GiveUp("crashed")),
        (SetAside("undecodable"), Finish("parked")),
        (Untouched(), Return()),
        (Untouched(timedelta(minutes=5)), Hold(300.0)),
        (Suspected(), Return(alone=True)),
        (AskedToPark("look at it"), GiveUp("handler-asked")),
    ],
)
def test_what_ended_or_was_not_tried_needs_no_second_thought(end: End, expected: Verdict) -> None:
    assert verdict(end) == expected


def test_a_failure_holds_the_key_for_a_short_time() -> None:
    held = verdict(FAILED)

    assert isinstance(held, Hold)
    assert 0.5 <= held.seconds <= 1.0


def test_what_would_be_held_too_long_waits_in_the_table() -> None:
    assert isinstance(verdict(FAILED, attempt=2, held_for=9.5), Wait)
    assert verdict(AskedToWait(timedelta(minutes=5), "")) == Wait(300.0, "handler-asked")


def test_what_was_asked_for_is_taken_to_the_letter() -> None:
    assert verdict(AskedToWait(timedelta(seconds=10), "")) == Hold(10.0)


@pytest.mark.parametrize("end", [FAILED, AskedToWait(timedelta(seconds=1), "")])
def test_the_last_attempt_is_for_a_person(end: End) -> None:
    assert not isinstance(verdict(end, attempt=4), GiveUp)
    assert isinstance(verdict(end, attempt=5), GiveUp)


@given(attempt=st.integers(1, 4), held_for=st.floats(0, 1_000), seed=st.integers(0, 9))
def test_nothing_is_held_beyond_the_limit(attempt: int, held_for: float, seed: int) -> None:
    found = judge(
        FAILED, attempt=attempt, held_for=held_for, rules=RULES, chance=random.Random(seed)
    )

    assert isinstance(found, Hold | Wait)
    if isinstance(found, Hold):
        assert held_for + found.seconds <= RULES.hold_limit
