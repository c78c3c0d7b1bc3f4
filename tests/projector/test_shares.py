"""A claim's rows are shared so that all shards of a tenant get equally far."""

from hypothesis import given
from hypothesis import strategies as st

from pillarbox.projector.shares import Shares, shares
from pillarbox.projector.turns import Pair


def asked(made: Shares, *pairs: Pair, each: int) -> dict[int, int]:
    return {pair.shard: quota for pair, quota in made.quotas(pairs, each)}


def test_shards_of_equal_density_get_equal_parts() -> None:
    assert shares(40, [100, 100], [0.5, 0.5]) == [20, 20]


def test_a_dense_shard_gets_more() -> None:
    assert shares(40, [100, 100], [0.75, 0.25]) == [30, 10]


def test_a_shard_that_lags_behind_catches_up_first() -> None:
    assert shares(10, [100, 200], [0.5, 0.5]) == [10, 0]


def test_of_a_shard_that_is_hardly_behind_one_row_is_read() -> None:
    assert shares(10, [100, 119], [0.5, 0.5]) == [9, 1]


def test_before_anything_is_known_all_are_taken_to_be_alike() -> None:
    assert asked(Shares(), Pair(0, "a", 10), Pair(1, "a", 10), each=8) == {0: 8, 1: 8}


def test_what_was_read_tells_how_dense_a_shard_is() -> None:
    made = Shares()
    made.learn(Pair(0, "a", 0), 9, 10)
    made.learn(Pair(1, "a", 0), 1, 10)

    assert asked(made, Pair(0, "a", 10), Pair(1, "a", 10), each=10) == {0: 18, 1: 2}


def test_a_shard_that_is_new_is_taken_to_be_like_the_others() -> None:
    made = Shares()
    made.learn(Pair(0, "a", 0), 5, 10)

    assert asked(made, Pair(0, "a", 10), Pair(1, "a", 10), each=10) == {0: 10, 1: 10}


def test_one_tenants_density_takes_nothing_from_another() -> None:
    made = Shares()
    made.learn(Pair(0, "loud", 0), 1_000, 1_000)

    assert dict(made.quotas([Pair(0, "loud", 1_000), Pair(0, "quiet", 5)], 10)) == {
        Pair(0, "loud", 1_000): 10,
        Pair(0, "quiet", 5): 10,
    }


shard_lists = st.lists(
    st.tuples(st.integers(0, 10**6), st.floats(1e-6, 1.0)), min_size=1, max_size=64
)


@given(shard_lists, st.integers(1, 4_000))
def test_about_as_many_rows_as_asked_for_and_the_last_ones_always(
    found: list[tuple[int, float]], rows: int
) -> None:
    read_to, rates = [start for start, _ in found], [rate for _, rate in found]

    made = shares(rows, read_to, rates)

    assert rows - len(found) <= sum(made) <= rows + len(found)
    assert made[read_to.index(min(read_to))] > 0
