"""The whole projector on PostgreSQL, to a bus that fails as it is told."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from pillarbox import MemoryMessageBus, MessageEnvelope
from pillarbox.bus.outcome import PublishOutcome, Refused, Unavailable, Unknown
from pillarbox.errors import InvalidConfig, ScopeOverlaps
from pillarbox.ops import Ops
from pillarbox.projector.observer import Observer
from pillarbox.projector.store import Failure, OutboxEvent
from tests.delivery.shop import ONE_PER_KEY, Shop
from tests.support.database import on
from tests.support.waiting import until

pytestmark = on("postgres18+psycopg")
TOO_LARGE = Refused("too-large", "1,048,577 bytes")


class Silent(MemoryMessageBus):
    """A bus that never answers."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()

    async def publish(
        self, batch: Sequence[MessageEnvelope], *, one_by_one: bool = False
    ) -> Sequence[PublishOutcome]:
        del batch, one_by_one
        self.asked.set()
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")


async def test_every_event_arrives_in_the_order_of_its_key(shop: Shop) -> None:
    ids = await shop.add(*["a", "b", "c"] * 20, None, None)

    assert await shop.projector().drain() == 62

    assert sorted(shop.delivered()) == sorted(ids)
    for key in "abc":
        mine = [m.event_id for m in shop.bus.messages if m.key == key]
        assert mine == [i for i in ids if i in mine]
    assert {event.status for event in await shop.database.events()} == {"SENT"}
    assert all(event.published_at for event in await shop.database.events())


async def test_an_event_without_a_key_has_none_on_the_wire(shop: Shop) -> None:
    await shop.add(None)

    await shop.projector().drain()

    assert [message.key for message in shop.bus.messages] == [None]


async def test_the_payload_goes_out_as_it_is_stored(shop: Shop) -> None:
    await shop.add("a")

    await shop.projector().drain()

    assert shop.bus.messages[0].data == b'{"key":"a"}'


async def test_leaving_gives_everything_back(shop: Shop) -> None:
    await shop.add("a")

    await shop.projector().drain()

    assert await shop.database.scalar("SELECT count(member_id) FROM outbox_lease") == 0
    assert await shop.database.scalar("SELECT count(*) FROM outbox_member") == 0
    open_claims = (
        "SELECT count(*) FROM outbox_claim WHERE claim_id NOT IN "
        "(SELECT claim_id FROM outbox_claim_end)"
    )
    assert await shop.database.scalar(open_claims) == 0


async def test_run_once_takes_one_batch(shop: Shop) -> None:
    await shop.add(*"abcdefgh")

    sent = await shop.configured(batch_size=2).projector().run_once()

    assert 0 < sent <= 2


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
    monkeypatch.setattr("pillarbox.projector.postgres.settling.CHUNK", 3)
    ids = await shop.add(*["a"] * 20)
    shop.refuse([ids[0]], TOO_LARGE, times=2)

    async with shop.projecting():
        await shop.status(ids[:1], "FAILED")
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


async def test_an_event_with_a_later_time_goes_when_it_is_due(shop: Shop) -> None:
    due = datetime.now(UTC) + timedelta(seconds=1)
    (later,) = await shop.add("a", deliver_at=due)
    (now,) = await shop.add("a")

    async with shop.projecting():
        await shop.sent([now])
        assert later not in shop.delivered()
        await shop.sent([later])

    published = next(e.published_at for e in await shop.database.events() if str(e.id) == later)
    assert published is not None
    assert published >= due


async def test_a_paused_tenant_waits_without_a_write_and_goes_on(shop: Shop) -> None:
    ops = Ops(shop.database.engine, actor="jane")
    await ops.pause(tenant_id="acme", reason="a migration")

    async with shop.projecting():
        waiting = await shop.add("a", "b", tenant="acme")
        others = await shop.add("a", "b", tenant="other")
        await shop.sent(others)
        untouched = "SELECT count(*) FROM outbox WHERE tenant_id = 'acme' AND set_aside IS NULL"
        assert await shop.database.scalar(untouched) == 2
        await ops.resume(tenant_id="acme", reason="done")
        await shop.sent(waiting)


async def test_a_paused_topic_waits_and_goes_on_in_order(shop: Shop) -> None:
    ops = Ops(shop.database.engine, actor="jane")
    await ops.pause(topic="mail", reason="the provider is down")

    async with shop.projecting():
        others = await shop.add("x")
        await shop.sent(others)
        waiting = await shop.add("a", "a", topic="mail")
        behind = await shop.add("a")
        free = await shop.add("b")
        await shop.sent(free)
        assert set(shop.delivered()).isdisjoint(waiting + behind)
        await ops.resume(topic="mail", reason="it is back")
        await shop.sent(waiting + behind)

    assert [m.event_id for m in shop.bus.messages if m.key == "a"] == waiting + behind


async def test_a_rate_limit_slows_a_tenant_and_no_other(shop: Shop) -> None:
    await Ops(shop.database.engine, actor="jane").limit(
        20, tenant_id="acme", reason="their consumer is slow"
    )
    shop.configured(batch_size=10)
    slow = await shop.add(*[f"k{n}" for n in range(60)], tenant="acme")
    quick = await shop.add(*[f"k{n}" for n in range(60)], tenant="other")

    async with shop.projecting():
        await shop.sent(quick)
        behind = [i for i in slow if i not in shop.delivered()]
        assert behind
        await shop.sent(slow, limit=20)


async def test_rows_can_be_deleted_when_they_are_delivered(shop: Shop) -> None:
    ids = await shop.add("a", "b")

    await shop.configured(on_sent="delete").projector().drain()

    assert sorted(shop.delivered()) == sorted(ids)
    assert await shop.database.count() == 0


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


async def test_what_a_dead_owner_left_publishing_is_sent(shop: Shop) -> None:
    ids = await shop.add("a", "b")
    await shop.run("UPDATE outbox SET status = 'PUBLISHING'")

    await shop.configured(claim="row").projector().drain()

    assert sorted(shop.delivered()) == sorted(ids)


async def test_large_payloads_are_read_in_small_batches(shop: Shop) -> None:
    ids = await shop.add(*["a", "b", "c"] * 10)
    await shop.run(
        """UPDATE outbox SET payload = ('"' || repeat(md5(random()::text), 200) || '"')::json"""
    )

    await shop.configured(batch_bytes=10_000).projector().drain()

    assert sorted(shop.delivered()) == sorted(ids)


async def test_more_than_a_batch_at_once_is_swept_and_sent_in_order(shop: Shop) -> None:
    async with shop.configured(batch_size=16).projecting():
        await shop.sent(await shop.add("first"))
        await shop.run(
            "INSERT INTO outbox (occurred_at, shard_hash, id, event_type, topic, key, payload) "
            "SELECT now(), n % 7, gen_random_uuid(), 'Noted', 'orders', 'k' || n % 7, '{}' "
            "FROM generate_series(1, 500) AS n"
        )
        everything = [str(event.id) for event in await shop.database.events()]
        await shop.sent(everything)

    for key in {message.key for message in shop.bus.messages}:
        mine = [m.event_id for m in shop.bus.messages if m.key == key]
        assert mine == [i for i in everything if i in mine]


async def test_a_commit_in_this_process_wakes_the_projector(shop: Shop) -> None:
    async with shop.configured(sleep_busy=60, sleep_idle=60).projecting():
        await shop.sent(await shop.add("a"))
        await shop.sent(await shop.add("b"), limit=5)


async def test_a_notification_from_elsewhere_wakes_the_projector(shop: Shop) -> None:
    async with shop.configured(sleep_busy=60, sleep_idle=60).projecting():
        await shop.sent(await shop.add("a"))
        await shop.run(
            "INSERT INTO outbox (occurred_at, shard_hash, id, event_type, topic, key, payload) "
            "SELECT now(), 3, gen_random_uuid(), 'Noted', 'orders', 'k', '{}'"
        )

        async def woken() -> bool:
            await shop.run("NOTIFY pillarbox_outbox")
            return len(shop.bus.messages) == 2

        await until(woken, "the second event", 5)


async def test_lost_connections_are_survived(shop: Shop) -> None:
    async with shop.projecting():
        for _ in range(5):
            await shop.sent(await shop.add("a", "b"))
            await shop.run(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'pillarbox-projector'"
            )

    assert [m.key for m in shop.bus.messages if m.key == "a"]
    assert set((await shop.attempts()).values()) == {0}


async def test_two_projectors_share_the_shards_and_hand_them_over(shop: Shop) -> None:
    shop.configured(lease=12.0)

    async def owners() -> list[int]:
        async with shop.database.engine.connect() as connection:
            rows = await connection.exec_driver_sql(
                "SELECT count(*) FROM outbox_lease WHERE member_id IS NOT NULL GROUP BY member_id"
            )
            return sorted(count for (count,) in rows)

    async def even() -> bool:
        return await owners() == [32, 32]

    async def one() -> bool:
        return await owners() == [64]

    async with shop.projecting():
        await until(one, "one owner")
        async with shop.projecting():
            await until(even, "two owners", 15)
            await shop.sent(await shop.add(*[f"k{n}" for n in range(50)]))
        await until(one, "one owner again", 15)
        await shop.sent(await shop.add(*[f"k{n}" for n in range(50)]))


async def test_overlapping_scopes_are_refused_and_equal_ones_share(shop: Shop) -> None:
    async with shop.projecting(tenant_id=["acme", "other"]):
        ids = await shop.add("a", tenant="acme")
        await shop.add("a", tenant="third")
        await shop.sent(ids)
        with pytest.raises(ScopeOverlaps, match="tenants:acme,other"):
            await shop.projector(tenant_id="acme").drain()
        with pytest.raises(ScopeOverlaps):
            await shop.projector().drain()

    assert [message.tenant_id for message in shop.bus.messages] == ["acme"]


async def test_buckets_divide_the_tenants(shop: Shop) -> None:
    tenants = [f"t{n}" for n in range(12)]
    for tenant in tenants:
        await shop.add("a", tenant=tenant)

    await shop.projector(bucket="0/2").drain()
    first = {message.tenant_id for message in shop.bus.messages}
    await shop.projector(bucket="1/2").drain()

    assert 0 < len(first) < 12
    assert {message.tenant_id for message in shop.bus.messages} == set(tenants)
    assert len(shop.bus.messages) == 12


async def test_a_lease_shorter_than_the_bus_may_take_is_refused_with_both_numbers(
    shop: Shop,
) -> None:
    with pytest.raises(InvalidConfig, match=r"is 5 s, and the bus may take 10 s"):
        shop.configured(lease=5.0).projector()


async def test_a_second_stop_does_not_wait_for_answers(shop: Shop) -> None:
    bus = Silent()
    await shop.add("a")
    projector = shop.projector(message_bus=bus)
    running = asyncio.create_task(projector.run_forever())
    await bus.asked.wait()

    projector.stop()
    projector.stop()
    await asyncio.wait_for(running, 5)

    assert await shop.database.scalar("SELECT count(member_id) FROM outbox_lease") == 0
    assert await shop.database.scalar("SELECT status FROM outbox") == "NEW"


async def test_an_aggregates_event_out_of_order_is_noticed(shop: Shop) -> None:
    class Watch(Observer):
        def __init__(self) -> None:
            self.broken: list[tuple[str, str]] = []

        def order_broken(self, tenant_id: str, key: str) -> None:
            self.broken.append((tenant_id, key))

    await shop.run(
        "INSERT INTO outbox (occurred_at, shard_hash, id, event_type, topic, key, payload, "
        "aggregate_type, aggregate_id, aggregate_version, event_number) "
        "SELECT now(), 3, gen_random_uuid(), 'Noted', 'orders', 'k', '{}', 'order', 'k', "
        "CASE n WHEN 3 THEN 1 ELSE n END, 1 FROM generate_series(1, 4) AS n"
    )
    watch = Watch()

    await shop.projector(observer=watch).drain()

    assert watch.broken == [("default", "k")]
