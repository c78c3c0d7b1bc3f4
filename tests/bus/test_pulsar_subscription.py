"""What only Pulsar does for those who listen: batches, types of subscriptions, and namespaces."""

import asyncio
import http.client
from collections.abc import Collection, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from uuid import uuid4

import pytest
from pulsar import ConnectError, Timeout

from pillarbox.bus.pulsar import PulsarMessageBus
from pillarbox.bus.pulsar.admin import Admin
from pillarbox.bus.pulsar.subscription import PulsarSubscription
from pillarbox.bus.pulsar.subscription_survey import kept_for
from pillarbox.bus.subscription import SubscriptionRequest, nothing_waits
from pillarbox.errors import InvalidConfig
from pillarbox.servers import Pulsar
from pillarbox.testing import SubscriptionContract, SubscriptionRig, message, new_topic
from pillarbox.testing.subscription.case import Group, Member, numbers
from pillarbox.testing.subscription.members import MembersContract
from tests.bus.rig_pulsar import quiet_client
from tests.bus.subscription_rig_pulsar import PulsarSubscriptionRig
from tests.support.waiting import until


@pytest.fixture
def request_() -> SubscriptionRequest:
    return SubscriptionRequest(f"c{uuid4().hex}", (new_topic(),))


@pytest.fixture(scope="module")
def indexing_server() -> Iterator[Pulsar]:
    """A broker that keeps what of a batch is finished, makes no topics, takes no large messages."""
    settings: dict[str, str | float] = {
        "acknowledgmentAtBatchIndexLevelEnabled": "true",
        "allowAutoTopicCreation": "false",
        "maxMessageSize": 2_000_000,
    }
    with Pulsar(settings=settings) as server:
        yield server


class TestFailover(SubscriptionContract):
    """One consumer of a partition at a time."""

    @pytest.fixture
    def rig(self, pulsar_server: Pulsar) -> SubscriptionRig:
        return PulsarSubscriptionRig(pulsar_server, name="pulsar, failover", kind="failover")

    async def test_a_partition_that_was_let_go_is_finished_first(self, group: Group) -> None:
        first = await group.join()
        assert not first.subscription.reception.orders_keys
        pytest.skip(
            "the broker gives a partition to the next consumer before the last one is asked"
        )


class TestBatches(MembersContract):
    """Members that are given whole batches."""

    @pytest.fixture
    def rig(self, pulsar_server: Pulsar) -> SubscriptionRig:
        return PulsarSubscriptionRig(pulsar_server, name="pulsar, batched", batched=True)


async def ignore(_: Collection[str]) -> None:
    """Have nothing of a partition in work."""


async def finished_in_part(server: Pulsar, request: SubscriptionRequest) -> list[int]:
    """Publish a batch of ten, finish four, leave, and return what the next member is given."""
    rig = PulsarSubscriptionRig(server, batched=True)
    await rig.prepare(request)
    member = Member(rig.subscription(request))
    await member.start()
    await rig.publish([message(request.topics[0], n, key="k") for n in range(10)])
    await member.subscription.acknowledge((await member.take(10))[:4])
    await member.subscription.close()
    heir = Member(rig.subscription(request))
    await heir.start()
    came = await heir.take_rest()
    await heir.subscription.close()
    return numbers(came)


async def test_a_batch_that_was_finished_in_part_comes_again_as_a_whole(
    pulsar_server: Pulsar, request_: SubscriptionRequest
) -> None:
    assert await finished_in_part(pulsar_server, request_) == list(range(10))


@pytest.mark.servers("pulsar")
async def test_a_broker_that_keeps_the_index_of_batches_brings_the_rest_alone(
    indexing_server: Pulsar, request_: SubscriptionRequest
) -> None:
    assert await finished_in_part(indexing_server, request_) == list(range(4, 10))


async def test_the_end_is_known_of_a_topic_without_partitions(
    pulsar_server: Pulsar, request_: SubscriptionRequest
) -> None:
    bus = PulsarMessageBus(pulsar_server.url, admin_url=pulsar_server.admin_url)
    await bus.prepare([request_])
    member = Member(bus.subscribe(request_))
    await member.start()
    empty = await nothing_waits(member.subscription)
    await bus.publish([message(request_.topics[0], 1, key="k")])

    waits = not await nothing_waits(member.subscription)
    await member.subscription.acknowledge(await member.take(1))
    await until(lambda: nothing_waits(member.subscription), "the acknowledgement has come")
    await member.subscription.close()
    await bus.close()

    assert (empty, waits) == (True, True)


class Sending(BaseHTTPRequestHandler):
    """A broker that has one topic, and sends whoever asks for it there from another address."""

    def do_GET(self) -> None:
        here = self.headers["Host"]
        elsewhere = here.replace("127.0.0.1", "localhost")
        self.send_response(200 if here == elsewhere else 307)
        self.send_header("Location", f"http://{elsewhere}{self.path}")
        self.end_headers()
        self.wfile.write(f'"{self.path}"'.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_a_broker_that_sends_to_the_owner_of_a_topic_is_followed() -> None:
    """On a cluster what waits could not be seen of the topics of other brokers."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Sending) as server:
        serving = Thread(target=server.serve_forever)
        serving.start()
        try:
            admin = Admin(f"http://127.0.0.1:{server.server_port}", None)
            found = admin.read("/persistent/a/b/c/stats?precise=true", 10)
        finally:
            server.shutdown()
            serving.join()

    assert found == "/admin/v2/persistent/a/b/c/stats?precise=true"


async def test_a_member_whose_new_subscription_fails_joins_later(
    pulsar_server: Pulsar, request_: SubscriptionRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had no consumer any more, and was deaf from then on."""
    client = quiet_client(pulsar_server)
    subscribe = client.subscribe
    refusals = [Timeout("nobody answers"), ConnectError("nobody is there")]

    def refused_at_first(*arguments: Any, **options: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return subscribe(*arguments, **options)

    bus = PulsarMessageBus(client, admin_url=pulsar_server.admin_url)
    subscription = bus.subscribe(request_)
    assert isinstance(subscription, PulsarSubscription)
    member = Member(subscription)
    await member.start()

    monkeypatch.setattr(client, "subscribe", refused_at_first)
    subscription._consumer._consumer.close()
    await member.take_until(lambda _: not refusals)
    await bus.publish([message(request_.topics[0], 1)])
    came = await member.take(1)
    await subscription.close()
    await bus.close()
    await asyncio.to_thread(client.close)

    assert numbers(came) == [1]


@pytest.mark.servers("pulsar")
async def test_a_missing_topic_is_told_at_the_start(
    indexing_server: Pulsar, request_: SubscriptionRequest
) -> None:
    subscription = PulsarSubscriptionRig(indexing_server).subscription(request_)

    with pytest.raises(InvalidConfig, match=f"{request_.topics[0]}.*bus apply"):
        await subscription.start(ignore)
    await subscription.close()


async def test_start_says_that_the_broker_takes_smaller_messages_than_are_recorded(
    indexing_server: Pulsar,
) -> None:
    bus = PulsarMessageBus(indexing_server.url, admin_url=indexing_server.admin_url)
    said = " ".join(await bus.start())
    await bus.close()

    assert "the broker takes messages up to 2,000,000 bytes" in said
    assert "a larger one is refused and stops its key" in said


async def test_start_says_what_would_lose_messages_that_wait(
    pulsar_server: Pulsar, request_: SubscriptionRequest
) -> None:
    namespace = f"public/n{uuid4().hex}"
    quota = '{"policy": "consumer_backlog_eviction", "limitSize": 1000000, "limitTime": -1}'

    def configure() -> None:
        for method, path, body in (
            ("PUT", "", None),
            ("POST", "/messageTTL", "60"),
            ("POST", "/subscriptionExpirationTime", "5"),
            ("POST", "/backlogQuota", quota),
        ):
            ask(pulsar_server, method, f"/admin/v2/namespaces/{namespace}{path}", body)

    await asyncio.to_thread(configure)
    bus = PulsarMessageBus(
        pulsar_server.url, admin_url=pulsar_server.admin_url, namespace=namespace
    )
    subscription = bus.subscribe(request_)

    said = await subscription.start(ignore)
    await subscription.close()
    await bus.close()

    assert [
        any(part in sentence for sentence in said)
        for part in (
            "nobody has acknowledged for 60 s",
            "away for 5 minutes",
            "drops the oldest",
            "acknowledgmentAtBatchIndexLevelEnabled is false",
        )
    ] == [True] * 4


@pytest.mark.parametrize(
    ("ttl", "minutes", "megabytes", "kept"),
    [
        (3600, 0, 0, timedelta(hours=1)),
        (3600, 120, -1, timedelta(hours=2)),
        (3600, 30, 100, timedelta(hours=1)),
        (3600, -1, -1, None),
        (3600, -1, 100, None),
        (0, 120, -1, None),
        (None, 120, -1, None),
    ],
)
def test_a_message_is_there_for_its_time_to_live_or_for_the_retention(
    ttl: int | None, minutes: int, megabytes: int, kept: timedelta | None
) -> None:
    retention = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": megabytes}

    assert kept_for(ttl, retention) == kept


async def test_the_longest_redelivery_is_known_and_the_lag_is_not(
    pulsar_server: Pulsar, request_: SubscriptionRequest
) -> None:
    namespace = f"public/n{uuid4().hex}"
    retention = '{"retentionTimeInMinutes": 120, "retentionSizeInMB": -1}'

    def configure() -> None:
        for method, path, body in (
            ("PUT", "", None),
            ("POST", "/messageTTL", "3600"),
            ("POST", "/retention", retention),
        ):
            ask(pulsar_server, method, f"/admin/v2/namespaces/{namespace}{path}", body)

    await asyncio.to_thread(configure)
    bus = PulsarMessageBus(
        pulsar_server.url, admin_url=pulsar_server.admin_url, namespace=namespace
    )
    subscriptions = [
        bus.subscribe(request_),
        PulsarMessageBus(pulsar_server.url).subscribe(request_),
    ]
    for subscription in subscriptions:
        await subscription.start(ignore)
    await bus.publish([message(request_.topics[0], 1)])
    lags = [await subscription.lag() for subscription in subscriptions]
    for subscription in subscriptions:
        await subscription.close()
    await bus.close()

    longest = [subscription.reception.longest_redelivery for subscription in subscriptions]
    assert longest == [timedelta(hours=2), None]
    # It counts batches, and those in our hands among them; whether any are left is known.
    assert lags == [None, None]


async def test_without_the_admin_interface_it_says_that_it_did_not_look(
    pulsar_server: Pulsar, request_: SubscriptionRequest
) -> None:
    subscription = PulsarMessageBus(pulsar_server.url).subscribe(request_)

    said = await subscription.start(ignore)
    await subscription.close()

    assert any("were not looked at; give admin_url" in sentence for sentence in said)


def test_a_type_that_keeps_no_order_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="key_shared or failover"):
        PulsarMessageBus("pulsar://localhost", subscription_type="shared")  # type: ignore[arg-type]  # a user's mistake


def ask(server: Pulsar, method: str, path: str, body: str | None) -> None:
    connection = http.client.HTTPConnection(server.admin_url.partition("://")[2], timeout=10)
    connection.request(method, path, body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    assert answer.status == 204, answer.read()
    connection.close()


async def test_what_is_published_before_the_first_start_is_kept_for_a_prepared_consumer(
    pulsar_server: Pulsar, request_: SubscriptionRequest
) -> None:
    rig, [topic] = PulsarSubscriptionRig(pulsar_server), request_.topics
    bus, admin = rig.bus(), Admin(pulsar_server.admin_url, None)

    made = await bus.prepare([request_])
    again = await bus.prepare([request_])
    await bus.close()
    path = f"/persistent/public/default/{topic}/subscriptions"
    subscriptions = await asyncio.to_thread(admin.read, path, 10)
    await rig.publish([message(topic, 7)])
    member = Member(rig.subscription(request_))
    await member.start()
    taken = await member.take(1)
    await member.subscription.close()

    assert (made, again) == ([topic, f"{request_.consumer} on {topic}"], [])
    assert subscriptions == [request_.consumer]
    assert numbers(taken) == [7]


async def test_without_the_admin_interface_no_subscription_can_be_prepared(
    request_: SubscriptionRequest,
) -> None:
    bus = PulsarMessageBus("pulsar://pulsar.example:6650")

    with pytest.raises(InvalidConfig, match="admin_url"):
        await bus.prepare([request_])
    await bus.close()
