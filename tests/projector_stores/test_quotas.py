"""A claim takes of a limited tenant what its rate allows, whatever the store."""

from uuid import uuid4

import pytest

from pillarbox.projector.store import ClaimRequest
from tests.projector_stores.rig import Owner, Rig, numbers

KEYS = [f"order-{number}" for number in range(8)]


async def claim_all(owner: Owner, most: int) -> list[list[int]]:
    """Claim until nothing is left, at most so many events of `acme` each time; keep them in hand."""
    claims, in_hand = [], set[int]()
    for _ in range(200):
        request = ClaimRequest(uuid4(), owner.epochs, 100, in_hand, quotas={"acme": most})
        claimed = await owner.store.claim(request)
        if claimed.events:
            claims.append(numbers(claimed.events))
            in_hand = in_hand | set(claims[-1])
        elif not claimed.more:
            return claims
    raise AssertionError("claims tell of more and bring nothing")


async def record(rig: Rig, first: int) -> None:
    """Record five events of `acme` for each key, and one of another tenant."""
    for place, key in enumerate(KEYS):
        await rig.record(
            *range(first + place * 5, first + place * 5 + 5), key=key, tenant_id="acme"
        )
    await rig.record(first + 90)


@pytest.mark.parametrize("known", [False, True], ids=["a backlog", "news"])
async def test_of_a_limited_tenant_each_claim_takes_no_more_than_its_rate_allows(
    rig: Rig, known: bool
) -> None:
    owner = await rig.owner()
    if known:
        await owner.claim()
    await record(rig, 100)

    claims = await claim_all(owner, 7)

    of_acme = [[seq for seq in claim if seq < 190] for claim in claims]
    assert max(map(len, of_acme)) <= 7
    assert sorted(seq for claim in of_acme for seq in claim) == list(range(100, 140))
    assert 190 in [seq for claim in claims[:2] for seq in claim]


async def test_the_events_of_a_key_come_in_order_however_few_are_taken(rig: Rig) -> None:
    owner = await rig.owner()
    await owner.claim()
    await record(rig, 100)

    taken = [seq for claim in await claim_all(owner, 3) for seq in claim]

    for place in range(len(KEYS)):
        own = [seq for seq in taken if 0 <= seq - 100 - place * 5 < 5]
        assert own == sorted(own)


async def test_few_events_of_a_limited_tenant_are_taken_at_once(rig: Rig) -> None:
    owner = await rig.owner()
    await owner.claim()
    await rig.record(1, 2, 3, tenant_id="acme")

    assert await claim_all(owner, 3) == [[1, 2, 3]]
