import os
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from uuid import RFC_4122, UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox.event.ids import RandomBytes, first_id, id_maker, made_at

MILLISECOND = timedelta(milliseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOMENTS = st.timedeltas(timedelta(), timedelta(days=2_900_000)).map(lambda after: EPOCH + after)


class SteppingClock:
    """Tell a time that goes on by the same step at each look."""

    def __init__(self, start: datetime, step: timedelta = timedelta()) -> None:
        self.time, self.step = start, step

    def now(self) -> datetime:
        self.time += self.step
        return self.time


def zeros(count: int) -> bytes:
    return bytes(count)


def ones(count: int) -> bytes:
    return b"\xff" * count


@given(moment=MOMENTS, random_bytes=st.sampled_from([zeros, ones, os.urandom]))
def test_an_id_is_a_version_7_uuid_whatever_the_clock_and_the_random_bytes_say(
    moment: datetime, random_bytes: RandomBytes
) -> None:
    made = id_maker(SteppingClock(moment), random_bytes)()

    assert made.version == 7
    assert made.variant == RFC_4122


@given(moment=MOMENTS)
def test_an_id_tells_the_millisecond_in_which_it_was_made(moment: datetime) -> None:
    made = id_maker(SteppingClock(moment))()

    told = made_at(made)

    assert told is not None
    assert timedelta() <= moment - told < MILLISECOND


def test_ids_rise_with_the_clock_from_one_microsecond_to_the_next() -> None:
    start = datetime(2026, 1, 1, 12, 0, 0, 998_000, tzinfo=UTC)
    make = id_maker(SteppingClock(start, timedelta(microseconds=1)))

    made = [make() for _ in range(5_000)]

    assert all(earlier < later for earlier, later in pairwise(made))


def test_ids_of_one_microsecond_differ() -> None:
    make = id_maker(SteppingClock(datetime(2026, 1, 1, tzinfo=UTC)))

    assert len({make() for _ in range(10_000)}) == 10_000


@given(moment=MOMENTS)
def test_a_bound_stands_between_the_ids_of_two_milliseconds(moment: datetime) -> None:
    at = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    last_before = id_maker(SteppingClock(at - timedelta(microseconds=1)), ones)
    first_after = id_maker(SteppingClock(at), zeros)

    assert first_id(at) <= first_after()
    if at > EPOCH:
        assert last_before() < first_id(at)


@pytest.mark.parametrize("other", [uuid4(), UUID(int=0), UUID(int=2**128 - 1)])
def test_an_id_of_another_version_tells_no_time(other: UUID) -> None:
    assert made_at(other) is None
