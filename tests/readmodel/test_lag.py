"""What follows from what the members of a subscribed model told."""

from datetime import UTC, datetime, timedelta
from typing import Any

from pillarbox.readmodel.lag import Told, lag_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


BEGAN = ago(1_000)


def told(seconds_ago: float = 1, *, good: bool = True, **said: Any) -> Told:
    good_until = NOW + timedelta(seconds=5) if good else ago(seconds_ago)
    return Told(told_at=ago(seconds_ago), good_until=good_until, **said)


def test_at_the_end_nothing_is_older_than_the_word_of_it() -> None:
    """A member that was killed once stood at 0 for ten seconds, whatever came."""
    end = told(1, at_end=True, fresh_at=ago(1), waiting=0)

    assert lag_of([end], NOW, BEGAN) == (0, 1.0)


def test_at_the_end_nothing_waits_though_the_broker_does_not_count() -> None:
    end = told(1, at_end=True, fresh_at=ago(1))

    assert lag_of([end], NOW, BEGAN) == (0, 1.0)


def test_the_oldest_in_anybodys_hands_counts() -> None:
    first = told(oldest_at=ago(7), in_hand=2, waiting=3, at_end=False, fresh_at=ago(1))
    second = told(oldest_at=ago(9), in_hand=1, waiting=3, at_end=False)

    assert lag_of([first, second], NOW, BEGAN) == (6, 9.0)


def test_a_member_at_the_end_does_not_hide_what_another_has_in_hand() -> None:
    busy = told(3, oldest_at=ago(9), in_hand=1, at_end=False)
    idle = told(1, at_end=True, waiting=0, fresh_at=ago(1))

    assert lag_of([busy, idle], NOW, BEGAN) == (1, 9.0)


def test_what_waits_at_the_broker_is_newer_than_what_was_applied() -> None:
    waits = told(waiting=4, at_end=False, fresh_at=ago(6))

    assert lag_of([waits], NOW, BEGAN) == (4, 6.0)


def test_the_newest_word_of_the_end_counts_and_silence_is_no_word() -> None:
    end = told(3, at_end=True, waiting=0, fresh_at=ago(3))
    silent = told(1)
    waits = told(2, at_end=False, waiting=1, fresh_at=ago(8))

    assert lag_of([end, silent], NOW, BEGAN) == (0, 3.0)
    assert lag_of([end, silent, waits], NOW, BEGAN) == (1, 3.0)


def test_when_nobody_tells_any_more_the_lag_grows() -> None:
    left = told(20, good=False, at_end=True, waiting=0, fresh_at=ago(20))

    assert lag_of([left], NOW, BEGAN) == (None, 20.0)


def test_what_the_last_member_left_unfinished_counts() -> None:
    left = told(20, good=False, oldest_at=ago(60), in_hand=1, fresh_at=ago(20))

    assert lag_of([left], NOW, BEGAN) == (None, 60.0)


def test_what_a_member_that_is_gone_had_in_hand_is_with_others_now() -> None:
    gone = told(20, good=False, oldest_at=ago(60), in_hand=1)
    end = told(at_end=True, waiting=0, fresh_at=ago(1))

    assert lag_of([gone, end], NOW, BEGAN) == (0, 1.0)


def test_a_model_that_nobody_ever_ran_is_late_since_it_began() -> None:
    assert lag_of([], NOW, BEGAN) == (None, 1_000.0)


def test_a_clock_that_is_ahead_does_not_make_it_nothing() -> None:
    ahead = told(oldest_at=NOW + timedelta(seconds=3), in_hand=1, waiting=0, at_end=False)

    assert lag_of([ahead], NOW, BEGAN).seconds > 0
