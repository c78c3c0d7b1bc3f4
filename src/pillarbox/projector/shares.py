"""How many rows a claim asks each shard of a tenant for, so that all get equally far."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter

from pillarbox.projector.turns import Pair

_of_tenant = attrgetter("tenant_id")


class Shares:
    """Remember how dense the rows of each pair are, and share a claim's rows by it.

    Equal parts would leave a shard with a hot key behind, and at the end there would be nothing but
    that key to send.
    """

    def __init__(self) -> None:
        self._rates: dict[tuple[int, str], float] = {}

    def quotas(self, pairs: Iterable[Pair], each: int) -> list[tuple[Pair, int]]:
        """Part `each` rows for every pair, a tenant's between its shards; leave out who is ahead."""
        asked: list[tuple[Pair, int]] = []
        for _, of_tenant in groupby(sorted(pairs, key=_of_tenant), _of_tenant):
            own = list(of_tenant)
            rows = shares(each * len(own), [pair.after for pair in own], self._rates_of(own))
            asked += [(pair, quota) for pair, quota in zip(own, rows, strict=True) if quota]
        return asked

    def learn(self, pair: Pair, rows: int, end: int) -> None:
        """Note that so many rows of a pair were read up to a number."""
        where, seen = pair[:2], rows / max(1, end - pair.after)
        self._rates[where] = (self._rates.get(where, seen) + seen) / 2

    def forget(self, pair: Pair) -> None:
        """Know nothing of a pair any more."""
        self._rates.pop(pair[:2], None)

    def _rates_of(self, pairs: Sequence[Pair]) -> list[float]:
        known = [self._rates[pair[:2]] for pair in pairs if pair[:2] in self._rates]
        usual = sum(known) / len(known) if known else 1 / len(pairs)
        return [self._rates.get(pair[:2], usual) for pair in pairs]


def shares(rows: int, read_to: Sequence[int], rates: Sequence[float]) -> list[int]:
    """Return how many rows to read of each shard, about `rows` in all; 0 of one that is ahead.

    `read_to` says how far each was read, `rates` how many rows it has for each number.
    """
    horizon = _horizon(rows, read_to, rates)
    wanted = (rate * (horizon - start) for start, rate in zip(read_to, rates, strict=True))
    return [max(1, int(share)) if share > 0 else 0 for share in wanted]


def _horizon(rows: int, read_to: Sequence[int], rates: Sequence[float]) -> float:
    """Return the number up to which the shards have so many rows between them."""
    order = sorted(range(len(read_to)), key=read_to.__getitem__)
    density = behind = horizon = 0.0
    for place, following in zip(order, [*order[1:], None], strict=True):
        density += rates[place]
        behind += rates[place] * read_to[place]
        horizon = (rows + behind) / density
        if following is None or horizon <= read_to[following]:
            break
    return horizon
