"""Whose turn it is: fair between tenants, and nothing is forgotten."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from pillarbox.projector.turns import Pair, Turns


def turns_of(shards: dict[str, int]) -> Turns:
    turns = Turns()
    for tenant_id, count in shards.items():
        for shard in range(count):
            turns.add(shard, tenant_id, 0)
    return turns


def tenants(pairs: list[Pair]) -> list[str]:
    return [pair.tenant_id for pair in pairs]


def turns_taken(turns: Turns, *, rounds: int, count: int) -> list[str]:
    return [tenant for _ in range(rounds) for tenant in tenants(turns.next(count))]


def test_tenants_come_first_then_their_shards() -> None:
    turns = turns_of({"loud": 5, "quiet": 1})

    assert tenants(turns.next(3)) == ["loud", "quiet", "loud"]


def test_the_next_call_begins_where_the_last_one_ended() -> None:
    turns = turns_of({"a": 2, "b": 2, "c": 2})

    assert turns_taken(turns, rounds=3, count=1) == ["a", "b", "c"]


def test_a_pair_is_picked_once_in_a_call() -> None:
    turns = turns_of({"a": 3, "b": 1})

    picked = turns.next(50)

    assert len(picked) == len(set(picked)) == 4


def test_a_tenant_that_is_passed_over_keeps_its_place() -> None:
    turns = turns_of({"a": 1, "b": 1, "c": 1})

    assert tenants(turns.next(2, passed_over={"a"})) == ["b", "c"]
    assert tenants(turns.next(1)) == ["a"]


def test_when_all_are_passed_over_nobody_is_served() -> None:
    turns = turns_of({"a": 1, "b": 2})

    assert turns.next(9, passed_over={"a", "b"}) == []
    assert len(turns) == 3


def test_a_pair_is_read_from_the_earliest_number_asked_for() -> None:
    turns = turns_of({"a": 1})
    turns.advance(0, "a", 70)

    turns.add(0, "a", 90)
    turns.add(0, "a", 30)

    assert turns.next(1) == [Pair(0, "a", 30)]


def test_a_pair_without_rows_leaves_until_it_is_added_again() -> None:
    turns = turns_of({"a": 1, "b": 1})

    turns.exhausted(0, "a")
    turns.exhausted(0, "a")

    assert list(turns.tenants()) == ["b"]
    assert turns.after(0, "a") is None
    turns.add(0, "a", 5)
    assert turns.after(0, "a") == 5


def test_shards_that_are_lost_are_forgotten() -> None:
    turns = turns_of({"a": 3, "b": 1})

    turns.forget([0, 2])

    assert [turns.after(shard, "a") for shard in range(3)] == [None, 0, None]
    assert list(turns.tenants()) == ["a"]


@given(shards=st.lists(st.integers(1, 6), min_size=1, max_size=6), count=st.integers(1, 6))
def test_a_tenant_is_served_as_often_as_any_other_up_to_one(shards: list[int], count: int) -> None:
    turns = turns_of({f"t{number}": many for number, many in enumerate(shards)})
    served = Counter(turns_taken(turns, rounds=40, count=min(count, len(shards))))

    assert max(served.values()) - min(served.values()) <= 1
    assert len(served) == len(shards)


@given(
    shards=st.lists(st.integers(1, 6), min_size=2, max_size=6),
    pauses=st.lists(st.booleans(), max_size=40),
)
def test_a_tenant_that_was_passed_over_is_served_within_the_next_round(
    shards: list[int], pauses: list[bool]
) -> None:
    turns = turns_of({f"t{number}": many for number, many in enumerate(shards)})
    for paused in pauses:
        served = tenants(turns.next(1, {"t0"} if paused else set()))
        assert not (paused and "t0" in served)

    assert "t0" in turns_taken(turns, rounds=len(shards), count=1)


@given(shards=st.lists(st.integers(1, 6), min_size=1, max_size=6), count=st.integers(1, 9))
def test_every_pair_has_its_turn(shards: list[int], count: int) -> None:
    turns = turns_of({f"t{number}": many for number, many in enumerate(shards)})
    seen: set[Pair] = set()

    for _ in range(len(shards) * max(shards)):
        seen.update(turns.next(count))

    assert len(seen) == sum(shards)
