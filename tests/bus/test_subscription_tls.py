"""A subscription shows the papers of its bus, and says what its bus says of them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from pillarbox.bus.kafka import KafkaMessageBus
from pillarbox.bus.nats import NatsMessageBus
from pillarbox.bus.outcome import ACCEPTED
from pillarbox.bus.subscription import SubscriptionRequest
from pillarbox.errors import BusUnreachable
from pillarbox.servers import Login
from pillarbox.servers.broker import Broker
from pillarbox.testing import message, new_topic
from pillarbox.testing.subscription.case import Member, numbers
from tests.bus.secure import Papers, SecureRig
from tests.bus.secure_rigs import SECURE_RIGS
from tests.support.certificates import Certificates, certificates

__all__ = ["certificates"]

LOGIN = Login("alice", "first-s3cret")
LISTENED_TO = ("kafka", "nats")


@dataclass(frozen=True, slots=True)
class Secured:
    rig: SecureRig
    server: Broker
    papers: Papers

    def bus(self, papers: Papers, seconds: int = 10) -> KafkaMessageBus | NatsMessageBus:
        made = self.rig.bus(self.server.port, papers, limit=timedelta(seconds=seconds))
        assert isinstance(made, KafkaMessageBus | NatsMessageBus)
        return made


@pytest.fixture(
    params=[pytest.param(name, marks=pytest.mark.servers(name)) for name in LISTENED_TO],
    scope="module",
)
def secured(request: pytest.FixtureRequest, certificates: Certificates) -> Iterator[Secured]:
    """Yield each broker in turn."""
    rig = SECURE_RIGS[request.param]
    with rig.server(replace(certificates.good, asks_client=True), LOGIN) as server:
        papers = Papers(lambda: LOGIN, certificates.authority, certificates.client)
        yield Secured(rig, server, papers)


async def test_messages_come_over_tls_with_a_login(secured: Secured) -> None:
    topic, bus = new_topic(), secured.bus(secured.papers)
    member = Member(bus.subscribe(SubscriptionRequest("payments", (topic,))))

    said = await member.start()
    outcomes = await bus.publish([message(topic, 1)])
    came = await member.take(1)
    await member.subscription.close()
    await bus.close()

    assert outcomes == [ACCEPTED]
    assert numbers(came) == [1]
    assert not [sentence for sentence in said if "encrypted" in sentence or "verified" in sentence]


async def test_a_wrong_password_is_refused_and_shown_nowhere(secured: Secured) -> None:
    wrong = replace(secured.papers, login=lambda: Login("alice", "wr0ng"))
    bus = secured.bus(wrong, seconds=4)
    member = Member(bus.subscribe(SubscriptionRequest("payments", (new_topic(),))))

    with pytest.raises(BusUnreachable) as raised:
        await member.start()
    await member.subscription.close()
    await bus.close()

    assert "wr0ng" not in f"{raised.value} {raised.value!r} {member.subscription!r}"
