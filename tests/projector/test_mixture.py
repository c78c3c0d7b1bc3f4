"""News of quiet tenants beside a backlog: what is claimed when."""

import pytest

from pillarbox.projector.mixture import CALLS, Call, Mixture, next_call


def behind() -> Mixture:
    mixture = Mixture()
    mixture.stepped(0.0, took=0.01, more=True)
    return mixture


def test_without_a_backlog_nothing_rests() -> None:
    mixture = Mixture()
    mixture.met(1.0)
    mixture.stepped(1.0, took=0.01, more=False)

    assert mixture.mixed(1.0)
    assert (mixture.behind, mixture.rest(1.0)) == (False, 0.0)


def test_a_backlog_alone_does_not_rest() -> None:
    assert behind().rest(0.0) == 0.0


def test_beside_news_a_backlog_rests_six_times_as_long_as_its_claim_took() -> None:
    mixture = behind()
    mixture.stepped(0.0, took=0.005, more=True)
    mixture.met(0.0)

    assert mixture.rest(0.0) == pytest.approx(0.03)
    assert mixture.rest(0.03) <= 0


def test_a_slow_database_makes_no_endless_rest() -> None:
    mixture = Mixture()
    mixture.met(0.0)
    mixture.stepped(0.0, took=3.0, more=True)

    assert mixture.rest(0.0) == pytest.approx(0.05)


def test_a_while_after_the_last_news_the_backlog_has_everything() -> None:
    mixture = behind()
    mixture.met(0.0)
    mixture.stepped(5.0, took=0.01, more=True)

    assert not mixture.mixed(5.0)
    assert mixture.rest(5.0) == 0.0


def test_news_is_looked_for_at_once_while_there_is_some() -> None:
    mixture = behind()
    mixture.looked(1.0, found=True)

    assert mixture.news_in(1.0) <= 0


def test_a_look_in_vain_after_a_claim_that_took_the_news_makes_no_pause() -> None:
    """The wake-up of news that the backlog's claim had taken once kept the next news for 10 ms."""
    mixture = behind()
    for now in (1.0, 2.0, 3.0):
        mixture.met(now)
        mixture.looked(now, found=False)

        assert mixture.news_in(now) <= 0


def test_looking_in_vain_becomes_rarer_and_news_ends_that() -> None:
    mixture, waits, now = behind(), list[float](), 1.0
    for _ in range(7):
        mixture.looked(now, found=False)
        waits.append(mixture.news_in(now))
        now += waits[-1]
    mixture.looked(now, found=True)

    assert waits == pytest.approx([0, 0.01, 0.02, 0.04, 0.08, 0.1, 0.1])
    assert mixture.news_in(now) <= 0


@pytest.mark.parametrize("most", [1, 2, 4])
def test_news_has_calls_of_its_own_beside_those_of_others(most: int) -> None:
    assert next_call(0, 0, most, news=True) is Call.NEWS
    assert next_call(most, 0, most, news=True) is Call.NEWS
    assert next_call(most, 0, most, news=False) is Call.NOTHING
    assert next_call(most + CALLS, CALLS, most, news=True) is Call.NOTHING


@pytest.mark.parametrize("most", [1, 2, 4])
def test_when_only_news_is_at_work_the_next_call_is_shared(most: int) -> None:
    assert next_call(CALLS, CALLS, most, news=True) is Call.BOTH
    assert next_call(CALLS + most - 1, CALLS + most - 1, most, news=True) is Call.BOTH
    assert next_call(1, 1, most, news=True) is Call.NEWS


def test_beside_others_news_has_calls_of_its_own() -> None:
    assert next_call(CALLS + 1, CALLS, 2, news=True) is Call.NEWS
