"""A bus talks only to a server whose certificate it can verify in full, and shows its papers."""

import asyncio
import http.client
import json
import logging
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from pillarbox.bus.kafka import KafkaMessageBus
from pillarbox.bus.outcome import ACCEPTED, Unavailable
from pillarbox.bus.subscription import SubscriptionRequest
from pillarbox.errors import BusUnreachable
from pillarbox.servers import Login, Pulsar, TlsFiles
from pillarbox.servers.broker import Broker
from pillarbox.servers.ports import LOOPBACK
from pillarbox.testing.subscription.case import Member, numbers
from tests.bus.rig import message, new_topic
from tests.bus.secure import ListenedTo, Papers, SecureRig, in_the_middle, listening
from tests.bus.secure_rigs import SECURE_RIGS
from tests.support.certificates import Certificates, certificates
from tests.support.waiting import until

__all__ = ["certificates"]

LIMIT = timedelta(seconds=10)
SHORT = timedelta(seconds=2)
SLACK = 1.0  # for a busy machine
RECOVERY = 60.0
TLS_HANDSHAKE = b"\x16"


@dataclass(slots=True)
class Secured:
    """A server that asks for TLS, a client's certificate and a login, and what opens it."""

    rig: SecureRig
    server: Broker
    papers: Papers
    login: Login

    @asynccontextmanager
    async def bus(
        self, port: int | None = None, papers: Papers | None = None, limit: timedelta = LIMIT
    ) -> AsyncIterator[ListenedTo]:
        made = self.rig.bus(port or self.server.port, papers or self.papers, limit=limit)
        try:
            yield made
        finally:
            await made.close()

    async def count(self, topic: str) -> int:
        return await self.rig.count(self.server.port, self.papers, topic)


@pytest.fixture(
    params=[pytest.param(name, marks=pytest.mark.servers(name)) for name in SECURE_RIGS],
    scope="module",
)
def secured(request: pytest.FixtureRequest, certificates: Certificates) -> Iterator[Secured]:
    """Yield each broker in turn."""
    rig = SECURE_RIGS[request.param]
    login = Login("alice", "first-s3cret")
    with rig.server(replace(certificates.good, asks_client=True), login) as server:
        papers = Papers(lambda: made.login, certificates.authority, certificates.client)
        made = Secured(rig, server, papers, login)
        yield made


async def is_refused(secured: Secured, papers: Papers, port: int | None = None) -> list[str]:
    """Hold a bus to it that it sends nothing, in time; return all that was said."""
    topic = new_topic()
    said = []
    async with secured.bus(port, papers, SHORT) as bus:
        begun = time.monotonic()
        with pytest.raises(BusUnreachable) as raised:
            await bus.start()
        said += [str(raised.value), repr(raised.value)]
        outcomes = await bus.publish([message(topic, n) for n in range(3)])
        assert time.monotonic() - begun <= 2 * SHORT.total_seconds() + SLACK
        said += [repr(outcomes), repr(bus), repr(vars(bus))]
    assert [type(outcome) for outcome in outcomes] == [Unavailable] * 3
    assert await secured.count(topic) == 0
    return said


def member_of(bus: ListenedTo, topic: str) -> Member:
    return Member(bus.subscribe(SubscriptionRequest("payments", (topic,))))


async def cannot_listen(secured: Secured, papers: Papers, port: int | None = None) -> str:
    """Hold a subscription to it that it does not start, in time; return all that was said."""
    async with secured.bus(port, papers, SHORT) as bus:
        member, begun = member_of(bus, new_topic()), time.monotonic()
        with pytest.raises(BusUnreachable) as raised:
            await member.start()
        assert time.monotonic() - begun <= 2 * SHORT.total_seconds() + SLACK
        await member.subscription.close()
    return f"{raised.value} {raised.value!r} {member.subscription!r}"


async def test_a_server_of_the_authority_is_taken(secured: Secured) -> None:
    topic = new_topic()

    async with secured.bus() as bus:
        weak = await bus.start()
        outcomes = await bus.publish([message(topic, n) for n in range(3)])

    assert outcomes == [ACCEPTED] * 3
    assert await secured.count(topic) == 3
    assert not [said for said in weak if "encrypted" in said or "verified" in said]


async def test_messages_come_over_tls_with_a_login(secured: Secured) -> None:
    topic = new_topic()

    async with secured.bus() as bus:
        member = member_of(bus, topic)
        weak = await member.start()
        outcomes = await bus.publish([message(topic, 1)])
        came = await member.take(1)
        await member.subscription.close()

    assert outcomes == [ACCEPTED]
    assert numbers(came) == [1]
    assert not [said for said in weak if "encrypted" in said or "verified" in said]


async def test_a_subscription_shows_its_papers_and_wants_to_see_those_of_the_server(
    secured: Secured, certificates: Certificates
) -> None:
    wrong = Login("alice", "wrong-s3cret")
    shown, greets = certificates.self_signed, secured.rig.greets

    said = await cannot_listen(secured, replace(secured.papers, login=lambda: wrong))
    await cannot_listen(secured, replace(secured.papers, client=None))
    async with in_the_middle(secured.server, shown, certificates.client, greets=greets) as port:
        await cannot_listen(secured, secured.papers, port)

    assert "wrong-s3cret" not in said


async def test_whoever_shows_a_certificate_of_the_authority_for_this_host_is_taken(
    secured: Secured, certificates: Certificates
) -> None:
    topic = new_topic()

    async with (
        in_the_middle(
            secured.server, certificates.good, certificates.client, greets=secured.rig.greets
        ) as port,
        secured.bus(port) as bus,
    ):
        assert await bus.publish([message(topic)]) == [ACCEPTED]


BAD: dict[str, Callable[[Certificates], TlsFiles]] = {
    "for another host": lambda made: made.wrong_host,
    "expired": lambda made: made.expired,
    "self-signed": lambda made: made.self_signed,
}


@pytest.mark.parametrize("bad", BAD)
async def test_a_server_with_a_bad_certificate_is_refused(
    secured: Secured, certificates: Certificates, bad: str
) -> None:
    async with in_the_middle(
        secured.server, BAD[bad](certificates), certificates.client, greets=secured.rig.greets
    ) as port:
        said = await is_refused(secured, secured.papers, port)

    assert "ertificate" in said[0] or not secured.rig.tells_why


async def test_a_server_of_an_authority_that_nobody_has_named_is_refused(secured: Secured) -> None:
    said = await is_refused(secured, replace(secured.papers, authority=None))

    assert "ertificate" in said[0] or not secured.rig.tells_why


async def test_a_bus_that_is_told_not_to_verify_says_so(
    secured: Secured, certificates: Certificates
) -> None:
    careless = replace(secured.papers, careless=True)

    async with (
        in_the_middle(
            secured.server, certificates.self_signed, certificates.client, greets=secured.rig.greets
        ) as port,
        secured.bus(port, careless) as bus,
    ):
        weak = await bus.start()

    assert [said for said in weak if "not verified" in said]


async def test_a_server_without_tls_is_told_nothing(secured: Secured) -> None:
    heard = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if secured.rig.greets:
            writer.write(b'INFO {"max_payload":1048576,"auth_required":true}\r\n')
        heard.extend(await reader.read(4096))

    async with listening(serve) as port:
        await is_refused(secured, secured.papers, port)

    assert bytes(heard[:1]) in {b"", TLS_HANDSHAKE}
    assert secured.login.password.encode() not in heard


async def test_a_client_without_a_certificate_is_refused(secured: Secured) -> None:
    await is_refused(secured, replace(secured.papers, client=None))


async def test_a_client_of_an_unknown_authority_is_refused(
    secured: Secured, certificates: Certificates
) -> None:
    await is_refused(secured, replace(secured.papers, client=certificates.stranger))


async def test_a_wrong_password_is_refused_and_shown_nowhere(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = Login("alice", "wrong-s3cret")

    said = await is_refused(secured, replace(secured.papers, login=lambda: wrong))

    assert "wrong-s3cret" not in "".join(said) + caplog.text
    assert "wrong-s3cret" not in "".join(str(vars(record)) for record in caplog.records)


@pytest.mark.parametrize("secured", ["pulsar"], indirect=True)
async def test_a_user_of_pulsar_without_the_right_waits_by_topic_until_it_may_produce(
    secured: Secured,
) -> None:
    assert isinstance(secured.server, Pulsar)
    topic, token = new_topic(), secured.server.token
    other = replace(secured.papers, login=lambda: replace(secured.login, user="bob"))
    async with secured.bus(papers=other) as bus:
        [before] = await bus.publish([message(topic)])
        granting = ("/namespaces/public/default/permissions/bob", ["produce"], token)
        await asyncio.to_thread(_grant, secured.server.admin_url, *granting)

        async def accepted() -> bool:
            return await bus.publish([message(topic)]) == [ACCEPTED]

        await until(accepted, "the right is heeded")
        await bus.start()

    assert isinstance(before, Unavailable)
    assert (before.code, before.topic) == ("AuthorizationError", topic)


def _grant(url: str, path: str, rights: list[str], token: str) -> None:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=20)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    try:
        connection.request("POST", f"/admin/v2{path}", json.dumps(rights), headers)
        assert connection.getresponse().status in {200, 204}
    finally:
        connection.close()


async def test_a_password_that_cannot_be_read_is_no_exception_of_publish(secured: Secured) -> None:
    def unreadable() -> Login:
        raise KeyError("no such secret")

    await is_refused(secured, replace(secured.papers, login=unreadable))


async def test_a_file_that_is_missing_makes_kafka_unavailable(tmp_path: Path) -> None:
    missing = {"security.protocol": "ssl", "ssl.ca.location": str(tmp_path / "missing.pem")}
    bus = KafkaMessageBus(f"{LOOPBACK}:9", settings=missing)

    with pytest.raises(BusUnreachable, match=r"ssl\.ca\.location"):
        await bus.start()
    together = await bus.publish([message(new_topic())])
    alone = await bus.publish([message(new_topic())], one_by_one=True)
    await bus.close()

    assert [type(outcome) for outcome in (*together, *alone)] == [Unavailable] * 2


@pytest.mark.faults
@pytest.mark.timeout(300)
async def test_a_changed_password_is_read_again_for_the_next_connection(secured: Secured) -> None:
    """The server is back before the new one can be read, so that the old one is refused first."""
    topic = new_topic()
    async with secured.bus(limit=SHORT) as bus:

        async def accepted() -> bool:
            return await bus.publish([message(topic, 1)]) == [ACCEPTED]

        async def accepted_again() -> bool:
            return await bus.publish([message(topic, 2)]) == [ACCEPTED]

        member = member_of(bus, topic)
        await member.start()
        await until(accepted, "messages are accepted", RECOVERY)
        await member.take_until(lambda seen: 1 in numbers(seen))
        changed = Login("alice", f"{secured.login.password}-2")
        secured.server.change_login(changed)
        await asyncio.to_thread(secured.server.restart)
        refused = await bus.publish([message(topic, 3)])
        silence = await member.subscription.receive(10)
        secured.login = changed
        await until(accepted_again, "messages are accepted with the new password", RECOVERY)
        await member.take_until(lambda seen: 2 in numbers(seen))
        await member.subscription.close()

    assert refused != [ACCEPTED]
    assert not silence


@pytest.mark.parametrize("secured", ["nats"], indirect=True)
async def test_a_client_that_is_thrown_out_comes_back_with_the_new_password(
    secured: Secured,
) -> None:
    """NATS ends connections whose password has changed, and its client gives up for good then."""
    topic = new_topic()
    async with secured.bus(limit=SHORT) as bus:

        async def accepted() -> bool:
            return await bus.publish([message(topic)]) == [ACCEPTED]

        async def refused() -> bool:
            return not await accepted()

        await until(accepted, "messages are accepted")
        changed = Login("alice", f"{secured.login.password}-3")
        secured.server.change_login(changed)
        os.kill(secured.server.pid, signal.SIGHUP)
        await until(refused, "the client is thrown out")
        secured.login = changed
        await until(accepted, "messages are accepted with the new password", RECOVERY)
