"""Who owns which shards: even shares, and few moves."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from pillarbox.projector.assignment import moves, share_of

ids = st.integers(0, 2**64).map(lambda number: UUID(int=number))
members_lists = st.lists(ids, min_size=1, max_size=9, unique=True)
shard_counts = st.integers(1, 128)

Owned = dict[UUID, set[int]]


def settle_down(owned: Owned, shards: int) -> int:
    """Have every member move until none wants to; return how many shards were handed over."""
    handed_over = 0
    for _ in range(2):
        for member, mine in owned.items():
            move = moves(member, list(owned), dict.fromkeys(mine, 1), shards)
            mine -= set(move.hand_over)
            handed_over += len(move.hand_over)
            free = set(range(shards)).difference(*owned.values())
            mine |= set(sorted(free)[: move.take])
    return handed_over


@given(members_lists, shard_counts)
def test_shares_differ_by_one_at_most_and_cover_all(members: list[UUID], shards: int) -> None:
    shares = [share_of(member, members, shards) for member in members]

    assert sum(shares) == shards
    assert max(shares) - min(shares) <= 1


@given(members_lists, shard_counts)
def test_members_that_see_one_another_in_another_order_agree(
    members: list[UUID], shards: int
) -> None:
    for member in members:
        assert share_of(member, members, shards) == share_of(member, members[::-1], shards)


@given(members_lists, shard_counts)
def test_members_end_with_their_shares_and_then_stay(members: list[UUID], shards: int) -> None:
    owned: Owned = {member: set() for member in members}

    settle_down(owned, shards)

    for member, mine in owned.items():
        assert len(mine) == share_of(member, members, shards)
    assert set().union(*owned.values()) == set(range(shards))
    assert settle_down(owned, shards) == 0


@given(members_lists, ids, shard_counts)
def test_a_member_that_joins_moves_no_more_than_its_share(
    members: list[UUID], joining: UUID, shards: int
) -> None:
    owned: Owned = {member: set() for member in members if member != joining}
    settle_down(owned, shards)
    owned[joining] = set()

    handed_over = settle_down(owned, shards)

    everybody = list(owned)
    nobody_else = len(everybody) == 1
    assert nobody_else or handed_over == share_of(joining, everybody, shards)


@given(st.lists(ids, min_size=2, max_size=9, unique=True), shard_counts)
def test_a_member_that_leaves_moves_nothing_of_the_others(members: list[UUID], shards: int) -> None:
    owned: Owned = {member: set() for member in members}
    settle_down(owned, shards)
    del owned[members[0]]

    assert settle_down(owned, shards) == 0
