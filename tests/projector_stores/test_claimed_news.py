"""What comes to a tenant without a backlog is told apart from the backlog of others."""

import pytest

from tests.projector_stores.rig import Rig, numbers, record_rows

pytestmark = pytest.mark.parametrize("rig", ["postgres+psycopg"], indirect=True)


async def test_news_is_claimed_without_the_backlog_and_the_backlog_keeps_its_news(rig: Rig) -> None:
    await rig.record(*range(1, 41), tenant_id="noisy")
    owner = await rig.owner()
    hand = {event.seq for event in await owner.claim(16)}

    async with rig.database.engine.connect() as late:
        await late.run_sync(record_rows, [0], {"tenant_id": "noisy", "key": "late"})
        await rig.record(50, tenant_id="quiet")
        await rig.record(51, tenant_id="noisy")
        news = await owner.claim_once(16, in_hand=hand, news=True)
        await late.commit()
    await rig.record(52, tenant_id="quiet")
    more = await owner.claim_once(16, in_hand=hand | {50}, news=True)

    assert (numbers(news.events), news.news) == ([50], {"quiet"})
    assert (numbers(more.events), more.news) == ([52], {"quiet"})
    hand |= {50, 52}
    for _ in range(10):
        hand |= {event.seq for event in (await owner.claim_once(16, in_hand=hand)).events}
    assert hand == {0, *range(1, 41), 50, 51, 52}


async def test_a_claim_for_everything_tells_news_from_the_backlog(rig: Rig) -> None:
    await rig.record(*range(1, 41), tenant_id="noisy")
    owner = await rig.owner()
    hand = {event.seq for event in await owner.claim(16)}
    await rig.record(50, tenant_id="quiet")
    await rig.record(51, tenant_id="noisy", key="of its own")

    claimed = await owner.claim_once(16, in_hand=hand)

    assert claimed.news == {"quiet"}
    assert 50 in numbers(claimed.events)
    assert {event.lane[0] for event in claimed.events} == {"quiet", "noisy"}
