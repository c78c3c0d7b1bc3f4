"""Back-off, and breakers: how long is waited after a failure."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox.projector.breaker import FIRST_PAUSE, LONGEST_PAUSE, Breaker
from pillarbox.retry import RetryPolicy


@given(
    attempt=st.integers(1, 999),
    delay=st.floats(0.001, 100),
    longer=st.floats(1, 1_000),
    seed=st.integers(),
)
def test_a_delay_doubles_up_to_its_longest_and_loses_half_at_most(
    attempt: int, delay: float, longer: float, seed: int
) -> None:
    policy = RetryPolicy(attempts=1_000, delay=delay, delay_max=delay * longer)

    waited = policy.after(attempt, random.Random(seed))

    full = min(delay * 2.0 ** min(attempt - 1, 100), delay * longer)
    assert waited is not None
    assert full / 2 <= waited <= full


@pytest.mark.parametrize("attempts", [1, 2, 5])
def test_the_last_attempt_is_followed_by_none(attempts: int) -> None:
    policy = RetryPolicy(attempts=attempts, delay=1.0, delay_max=9.0)
    chance = random.Random(1)

    waits = [policy.after(attempt, chance) for attempt in range(1, attempts + 2)]

    assert [wait is None for wait in waits] == [False] * (attempts - 1) + [True, True]


def test_events_that_failed_together_do_not_return_together() -> None:
    policy, chance = RetryPolicy(attempts=3, delay=1.0, delay_max=9.0), random.Random(1)

    assert len({policy.after(1, chance) for _ in range(100)}) == 100


def test_a_closed_breaker_lets_everything_through() -> None:
    breaker = Breaker()

    assert breaker.closed
    assert all(breaker.lets_through(0.0) for _ in range(3))


def test_an_open_breaker_lets_nothing_through_until_its_pause_is_over() -> None:
    breaker = Breaker()

    breaker.failed(10.0)

    assert not breaker.closed
    assert not breaker.lets_through(10.0 + FIRST_PAUSE * 0.99)
    assert breaker.lets_through(10.0 + FIRST_PAUSE)


def test_one_try_is_let_through_after_a_pause() -> None:
    breaker = Breaker()
    breaker.failed(0.0)

    assert [breaker.lets_through(1.0) for _ in range(3)] == [True, False, False]


def test_a_try_that_fails_doubles_the_pause_up_to_the_longest() -> None:
    breaker, now, pauses = Breaker(), 0.0, []
    breaker.failed(now)
    for _ in range(9):
        now = breaker.again_at
        assert breaker.lets_through(now)
        breaker.failed(now)
        pauses.append(breaker.again_at - now)

    assert pauses == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, *[LONGEST_PAUSE] * 4])


def test_several_failures_of_one_batch_count_as_one() -> None:
    breaker = Breaker()

    for _ in range(5):
        breaker.failed(0.0)

    assert breaker.again_at == FIRST_PAUSE


def test_a_try_that_arrives_closes_the_breaker_and_forgets_the_pause() -> None:
    breaker = Breaker()
    breaker.failed(0.0)
    breaker.lets_through(1.0)

    breaker.succeeded()

    assert breaker.closed
    breaker.failed(2.0)
    assert breaker.again_at == 2.0 + FIRST_PAUSE
