"""Tenure: what is given back, and when."""

from collections.abc import Iterable, Sequence
from typing import cast
from uuid import UUID

from pillarbox.bus.outcome import ACCEPTED
from pillarbox.projector.observer import Observer
from pillarbox.projector.store import Ownership, Store, Suspects
from pillarbox.projector.tenure import Tenure
from tests.projector.events import claim, event, settle, work


class Leases:
    """The part of a store that keeps leases: it asks for the shards in `hand_back`."""

    def __init__(self) -> None:
        self.epochs = {0: 1, 1: 1}
        self.hand_back: tuple[int, ...] = ()
        self.given_back: list[int] = []
        self.suspects = Suspects()

    async def keep(self, _: Sequence[UUID]) -> Ownership:
        return Ownership(dict(self.epochs), self.hand_back, self.suspects)

    async def hand_over(self, shards: Sequence[int]) -> None:
        self.given_back += shards
        for shard in shards:
            del self.epochs[shard]

    def forget(self, shards: Iterable[int]) -> None:
        """Nothing is remembered here."""


def tenure(leases: Leases) -> Tenure:
    return Tenure(cast(Store, leases), work(), Observer(), 2, 10.0, lambda: 0.0)


async def test_a_shard_with_nothing_in_hand_is_given_back_at_once() -> None:
    leases = Leases()
    kept = tenure(leases)
    leases.hand_back = (1,)

    await kept.keep()

    assert leases.given_back == [1]
    assert kept.epochs == {0: 1}


async def test_a_shard_is_not_given_back_while_it_is_being_claimed_for() -> None:
    leases = Leases()
    kept = tenure(leases)
    await kept.keep()
    leases.hand_back = (1,)

    with kept.claiming() as epochs:
        await kept.keep()
        assert leases.given_back == []
        events = kept.still_owned([event(1, shard=1)], epochs)
        claim(kept.work, *events, epochs=epochs)

    await kept.keep()
    assert leases.given_back == []
    with kept.claiming() as epochs:
        assert epochs == {0: 1}
    batch = kept.work.next_batch(0.0)
    assert batch is not None
    kept.work.answered(batch, [ACCEPTED], 0.0)
    settle(kept.work)
    await kept.keep()
    assert leases.given_back == [1]


async def test_a_death_is_suspected_unless_the_database_was_away_lately() -> None:
    leases, clock = Leases(), [0.0]
    kept = Tenure(cast(Store, leases), work(), Observer(), 2, 10.0, lambda: clock[0])
    leases.suspects = Suspects(frozenset({7}), 40)

    kept.cut_off()
    await kept.keep()
    after_an_outage = kept.work.room(1_000, 0.0)
    clock[0] = 21.0
    await kept.keep()

    assert (after_an_outage, kept.work.room(1_000, 0.0)) == (100, 20)
