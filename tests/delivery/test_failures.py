"""What fails holds up as little as it can, on PostgreSQL, to a bus that fails as it is told."""

from datetime import UTC, datetime, timedelta

import pytest

from pillarbox.bus.outcome import Refused, Unavailable, Unknown
from pillarbox.ops import Ops
from pillarbox.projector.store import Failure, OutboxEvent
from tests.delivery.shop import ONE_PER_KEY, Shop
from tests.support.database import on
from tests.support.waiting import until

pytestmark = on("postgres18+psycopg")
TOO_LARGE = Refused("too-large", "1,048,577 bytes")


@pytest.mark.parametrize("one_per_key", [False, True])
async def test_a_refused_event_holds_its_key_and_no_other(shop: Shop, one_per_key: bool) -> None:
    if one_per_key:
        shop.bus = type(shop.bus)(ONE_PER_KEY)
    first, bad, behind = await shop.add("a", "a", "a")
    others = await shop.add(*[f"k{n}" for n in range(30)])
    shop.refuse([bad], TOO_LARGE)
    shop.configured(retry_delay=600, retry_delay_max=600)

    async with shop.projecting():
        await shop.sent([first, *others])
        await shop.status([bad], "FAILED")
        later = await shop.add("a", "z")
        await shop.sent(later[1:])

    assert behind not in shop.delivered()
    assert later[0] not in shop.delivered()
    assert {i: n for i, n in (await shop.attempts()).items() if n} == {bad: 1}


async def test_a_failed_event_is_tried_again_and_its_key_goes_on_in_order(shop: Shop) -> None:
    ids = await shop.add(*["a"] * 6)
    shop.refuse([ids[2]], TOO_LARGE, times=3)

    async with shop.projecting():
        await shop.sent(ids)
        more = await shop.add("a")
        await shop.sent(more)

    assert shop.delivered() == ids + more
    # The first refusal came while others of the key were in flight: it was asked again alone.
    assert (await shop.attempts())[ids[2]] == 2
    assert await shop.database.scalar("SELECT count(*) FROM outbox_blocked_key") == 0


async def test_a_long_queue_behind_a_failure_comes_back_in_chunks_in_order(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pillarbox.outbox.release.CHUNK", 3)
    ids = await shop.add(*["a"] * 20)
    shop.refuse([ids[0]], TOO_LARGE, times=2)

    async def failed() -> bool:  # it is FAILED for a moment only
        return (await shop.attempts())[ids[0]] > 0

    async with shop.projecting():
        await until(failed, "an attempt that failed")
        ids += await shop.add(*["a"] * 10)
        await shop.sent(ids, limit=30)

    assert shop.delivered() == ids


async def test_an_event_that_gave_up_is_dead_and_blocks_its_key_until_someone_decides(
    shop: Shop,
) -> None:
    told: list[tuple[str, str]] = []

    async def hook(event: OutboxEvent, failure: Failure) -> None:
        told.append((event.event_id, failure.code))

    bad, behind = await shop.add("a", "a")
    shop.refuse([bad], TOO_LARGE)
    ops = Ops(shop.database.engine, actor="jane")

    async with shop.configured(max_retry_attempts=3).projecting(dead_hook=hook):
        await shop.status([bad], "DEAD")
        assert behind not in shop.delivered()
        await ops.skip(bad, reason="the customer is gone")
        await shop.sent([behind])

    assert told == [(bad, "too-large")]
    (dead, _) = await shop.database.events()
    assert dead.retry_count == 3
    assert bad not in shop.delivered()


async def test_a_dead_event_that_is_retried_goes_first(shop: Shop) -> None:
    bad, behind = await shop.add("a", "a")
    shop.refuse([bad], TOO_LARGE)

    async with shop.configured(max_retry_attempts=1).projecting():
        await shop.status([bad], "DEAD")
        shop.bus.recover()
        await Ops(shop.database.engine, actor="jane").retry(bad, reason="the limit was raised")
        await shop.sent([bad, behind])

    assert shop.delivered() == [bad, behind]


async def test_a_discarded_event_lets_its_key_go_on(shop: Shop) -> None:
    bad, behind = await shop.add("a", "a")
    shop.refuse([bad], TOO_LARGE)

    async with shop.configured(max_retry_attempts=1).projecting():
        await shop.status([bad], "DEAD")
        await Ops(shop.database.engine, actor="jane").discard(bad, reason="a test order")
        await shop.sent([behind])

    assert shop.delivered() == [behind]


async def test_by_policy_a_dead_event_is_skipped(shop: Shop) -> None:
    bad, behind = await shop.add("a", "a")
    shop.refuse([bad], TOO_LARGE)

    async with shop.configured(max_retry_attempts=2, on_dead="skip").projecting():
        await shop.status([bad], "DEAD")
        await shop.sent([behind])

    assert shop.delivered() == [behind]


async def test_an_answer_that_was_lost_is_sent_again_and_burns_no_attempt(shop: Shop) -> None:
    ids = await shop.add(*["a"] * 5, *["b"] * 5)
    shop.refuse([ids[1]], Unknown("ack-lost", "in this test"), store=True, times=2)

    async with shop.projecting():
        await shop.sent(ids)

    assert list(dict.fromkeys(m.event_id for m in shop.bus.messages if m.key == "a")) == ids[:5]
    assert shop.delivered().count(ids[1]) == 3
    assert set((await shop.attempts()).values()) == {0}


async def test_a_refusal_of_a_whole_batch_counts_for_the_guilty_one_only(shop: Shop) -> None:
    ids = await shop.add(*[f"k{n}" for n in range(40)])
    bad = ids[17]
    shop.refuse(ids, Refused("too-large", "the batch", certain=False), times=40)
    shop.refuse([bad], TOO_LARGE)

    async with shop.configured(retry_delay=600, retry_delay_max=600).projecting():
        await shop.status([bad], "FAILED")
        await shop.sent([i for i in ids if i != bad])

    assert {i for i, n in (await shop.attempts()).items() if n} == {bad}


async def test_a_topic_that_cannot_be_had_holds_up_no_other(shop: Shop) -> None:
    waiting = await shop.add(*["a", "b", "c"] * 10, topic="gone")
    others = await shop.add(*["d", "e"] * 10)
    mixed = await shop.add("a")
    recover = shop.fail_topic("gone", Unavailable("no-topic", "missing", topic="gone"))

    async with shop.configured(batch_size=10, batches_in_hand=2).projecting():
        await shop.sent(others)
        late = await shop.add("f")
        await shop.sent(late)
        assert mixed[0] not in shop.delivered()  # the order of a key holds across topics
        recover()
        await shop.sent(waiting + mixed, limit=20)

    for key in "abc":
        mine = [m.event_id for m in shop.bus.messages if m.key == key]
        assert mine == [i for i in waiting + mixed if i in mine]
    assert set((await shop.attempts()).values()) == {0}


async def test_a_bus_that_is_down_costs_no_attempt_and_drains_by_itself(shop: Shop) -> None:
    ids = await shop.add(*["a", "b"] * 50)
    shop.bus.fail_with(lambda _: True, Unavailable("down", "in this test"))

    async with shop.projecting():
        more = await shop.add(*["a", "c"] * 5)
        shop.bus.recover()
        await shop.sent(ids + more)

    for key in "abc":
        mine = [m.event_id for m in shop.bus.messages if m.key == key]
        assert mine == [i for i in ids + more if i in mine]
    assert set((await shop.attempts()).values()) == {0}


async def test_an_expired_event_is_dead_and_blocks_nobody(shop: Shop) -> None:
    past = datetime.now(UTC) - timedelta(minutes=1)
    (expired,) = await shop.add("a", expires_at=past)
    (behind,) = await shop.add("a")

    await shop.projector().drain()

    assert shop.delivered() == [behind]
    (dead, _) = await shop.database.events()
    assert (str(dead.id), dead.status, dead.error_class) == (expired, "DEAD", "expired")


async def test_an_event_that_expires_while_the_bus_is_down_is_never_delivered(shop: Shop) -> None:
    expires_at = datetime.now(UTC) + timedelta(seconds=1)
    (expired,) = await shop.add("a", expires_at=expires_at)
    (behind,) = await shop.add("a")
    shop.bus.fail_with(lambda _: True, Unavailable("down", "it is"))

    async def is_late() -> bool:
        return datetime.now(UTC) > expires_at + timedelta(seconds=0.1)

    async with shop.projecting():
        await until(is_late, "its time has passed")
        shop.bus.recover()
        await shop.sent([behind])
        await shop.status([expired], "DEAD")

    assert shop.delivered() == [behind]


async def test_without_order_a_refused_event_holds_up_nobody(shop: Shop) -> None:
    bad, behind = await shop.add("a", "a")
    shop.refuse([bad], TOO_LARGE)
    shop.configured(ordered=False, retry_delay=600, retry_delay_max=600)

    async with shop.projecting():
        await shop.sent([behind])
        await shop.status([bad], "FAILED")
        more = await shop.add("a")
        await shop.sent(more)


async def test_a_claim_by_row_writes_publishing_and_loses_nothing(shop: Shop) -> None:
    ids = await shop.add(*["a", "b"] * 10)
    bad = ids[4]
    shop.refuse([bad], TOO_LARGE, times=2)

    async with shop.configured(claim="row").projecting():
        await shop.sent(ids)

    for key in "ab":
        mine = [m.event_id for m in shop.bus.messages if m.key == key]
        assert mine == [i for i in ids if i in mine]


async def test_what_is_behind_a_blocked_key_of_a_slow_tenant_is_set_aside_in_few_claims(
    shop: Shop,
) -> None:
    """The rate is of what is sent: at one a second each of these had a claim of its own."""
    (bad,) = await shop.add("a", tenant="acme")
    shop.refuse([bad], TOO_LARGE)
    await Ops(shop.database.engine, actor="jane").limit(
        1, tenant_id="acme", reason="their consumer is slow"
    )

    async def are_set_aside() -> bool:
        left = "SELECT count(*) FROM outbox WHERE status = 'NEW' AND set_aside IS NULL"
        return bool(await shop.database.scalar(left) == 0)

    async with shop.configured(retry_delay=600, retry_delay_max=600).projecting():
        await shop.status([bad], "FAILED")
        await shop.add_together(*["a"] * 1_000, topic="orders", tenant="acme")
        await until(are_set_aside, "all are set aside", 30)
        claims = await shop.database.scalar("SELECT count(*) FROM outbox_claim")

    assert claims < 60
