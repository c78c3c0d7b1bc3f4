"""The whole projector on PostgreSQL, to a bus that fails as it is told."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from pillarbox.bus.outcome import Refused
from pillarbox.errors import InvalidConfig
from pillarbox.ops import Ops
from pillarbox.projector.observer import Observer
from pillarbox.projector.postgres.store import PostgresStore
from pillarbox.projector.store import Claimed, ClaimRequest, Control
from tests.delivery.shop import Shop
from tests.support.database import on

pytestmark = on("postgres18+psycopg")


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


async def test_an_event_with_a_later_time_goes_when_it_is_due(shop: Shop) -> None:
    (much_later,) = await shop.add("a", deliver_at=datetime.now(UTC) + timedelta(hours=1))
    (now,) = await shop.add("a")

    async with shop.projecting():
        await shop.sent([now])
        due = datetime.now(UTC) + timedelta(seconds=1)
        (later,) = await shop.add("a", deliver_at=due)
        await shop.sent([later])
        assert much_later not in shop.delivered()

    published = next(e.published_at for e in await shop.database.events() if str(e.id) == later)
    assert published is not None
    assert published >= due


async def test_a_paused_tenant_waits_without_a_write_and_goes_on(shop: Shop) -> None:
    ops = Ops(shop.database.engine, actor="jane")
    await ops.pause(tenant_id="acme", reason="a migration")

    waiting = await shop.add("a", "b", tenant="acme")
    others = await shop.add("a", "b", tenant="other")

    async with shop.projecting():
        await shop.sent(others)
        untouched = "SELECT count(*) FROM outbox WHERE tenant_id = 'acme' AND set_aside IS NULL"
        assert await shop.database.scalar(untouched) == 2
        await ops.resume(tenant_id="acme", reason="done")
        await shop.sent(waiting)


async def test_what_operators_ask_for_is_known_before_the_first_claim(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A projector that had just started once sent for a tenant that was paused."""
    asked: list[str] = []
    controls, claim = PostgresStore.controls, PostgresStore.claim

    async def told(store: PostgresStore) -> Sequence[Control]:
        found = await controls(store)
        asked.append("controls")
        return found

    async def claimed(store: PostgresStore, request: ClaimRequest) -> Claimed:
        asked.append("claim")
        return await claim(store, request)

    monkeypatch.setattr(PostgresStore, "controls", told)
    monkeypatch.setattr(PostgresStore, "claim", claimed)
    await shop.add("a")

    await shop.projector().drain()

    assert "claim" in asked
    assert asked[0] == "controls"


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
    ops = Ops(shop.database.engine, actor="jane")
    await ops.limit(1, tenant_id="acme", reason="their consumer is slow")
    shop.configured(batch_size=10)
    slow = await shop.add(*[f"k{n}" for n in range(60)], tenant="acme")
    quick = await shop.add(*[f"k{n}" for n in range(60)], tenant="other")

    async with shop.projecting():
        await shop.sent(quick)
        behind = [i for i in slow if i not in shop.delivered()]
        assert behind
        await ops.limit(None, tenant_id="acme", reason="it is quick again")
        await shop.sent(slow, limit=20)


async def test_a_rate_limit_lets_no_whole_batch_through(shop: Shop) -> None:
    """10 events/s let 2,000 go at once, and then nothing for 200 s."""
    ops = Ops(shop.database.engine, actor="jane")
    await ops.limit(10, tenant_id="acme", reason="their consumer is slow")
    await shop.add_together(*[f"k{n}" for n in range(60)], topic="orders", tenant="acme")

    assert 0 < await shop.projector().run_once() <= 10


async def test_rows_can_be_deleted_when_they_are_delivered(shop: Shop) -> None:
    ids = await shop.add("a", "b")

    await shop.configured(on_sent="delete").projector().drain()

    assert sorted(shop.delivered()) == sorted(ids)
    assert await shop.database.count() == 0


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


async def test_rows_that_a_read_model_of_another_process_follows_are_not_deleted(
    shop: Shop,
) -> None:
    await shop.run(
        "INSERT INTO readmodel (name, generation, source, state) VALUES ('plans', 1, 'log', 'live')"
    )

    try:
        with pytest.raises(InvalidConfig, match="the read model 'plans' follows the log"):
            await shop.configured(on_sent="delete").projector().run_once()
    finally:
        await shop.run("DELETE FROM readmodel")


class Watch(Observer):
    """Note what is told of the order."""

    def __init__(self) -> None:
        self.broken: list[tuple[str, str]] = []

    def order_broken(self, tenant_id: str, key: str) -> None:
        self.broken.append((tenant_id, key))


async def test_events_that_come_back_behind_a_retried_one_break_no_order(shop: Shop) -> None:
    await shop.run(
        "INSERT INTO outbox (occurred_at, shard_hash, id, event_type, topic, key, payload, "
        "aggregate_type, aggregate_id, aggregate_version, event_number) "
        "SELECT now(), 3, gen_random_uuid(), 'Noted', 'orders', 'k', '{}', 'order', 'k', n, 1 "
        "FROM generate_series(1, 4) AS n"
    )
    first, *_ = ids = list(await shop.standing())
    shop.refuse([first], Refused("too-large", "it is"))
    watch = Watch()

    shop.configured(retry_delay=0.2, retry_delay_max=0.2, max_retry_attempts=100)
    async with shop.projecting(observer=watch):
        await shop.status([first], "FAILED")
        shop.bus.recover()
        await shop.sent(ids)

    assert shop.delivered() == ids
    assert watch.broken == []


async def test_an_aggregates_event_out_of_order_is_noticed(shop: Shop) -> None:
    await shop.run(
        "INSERT INTO outbox (occurred_at, shard_hash, id, event_type, topic, key, payload, "
        "aggregate_type, aggregate_id, aggregate_version, event_number) "
        "SELECT now(), 3, gen_random_uuid(), 'Noted', 'orders', 'k', '{}', 'order', 'k', "
        "CASE n WHEN 3 THEN 1 ELSE n END, 1 FROM generate_series(1, 4) AS n"
    )
    watch = Watch()

    await shop.projector(observer=watch).drain()

    assert watch.broken == [("default", "k")]
