"""Who owns which shards: decided by each member alone, from the same rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Moves:
    """What a member should do: take up to `take` free shards, and hand over these."""

    take: int
    hand_over: tuple[int, ...] = ()


def share_of(member: UUID, members: Sequence[UUID], shards: int) -> int:
    """Return how many shards a member should own; the shares differ by one at most."""
    ranked = sorted(members)
    each, rest = divmod(shards, len(ranked))
    return each + (1 if ranked.index(member) < rest else 0)


def moves(member: UUID, members: Sequence[UUID], owned: Mapping[int, int], shards: int) -> Moves:
    """Compare what a member owns with its share.

    Only what is too much is handed over, so that as few shards as possible move.
    """
    share = share_of(member, members, shards)
    too_many = len(owned) - share
    if too_many > 0:
        return Moves(0, tuple(sorted(owned)[-too_many:]))
    return Moves(-too_many)
