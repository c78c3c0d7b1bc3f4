"""What every subscription does, on the real broker."""

import pytest

from pillarbox.bus.subscription import nothing_waits
from pillarbox.servers import Server
from pillarbox.testing import (
    SubscriptionContract,
    SubscriptionOutageContract,
    SubscriptionRig,
)
from pillarbox.testing.subscription.case import PATIENCE, Group
from tests.bus.subscription_rig import OwnSubscriptionRig
from tests.bus.subscription_rigs import RIGS
from tests.support.waiting import until


class TestEverySubscription(SubscriptionContract):
    """Each broker in turn, on the servers that all tests share."""

    @pytest.fixture(params=RIGS)
    def rig(self, request: pytest.FixtureRequest) -> SubscriptionRig:
        return RIGS[request.param](request.getfixturevalue(f"{request.param}_server"))

    async def test_the_end_is_known_once_all_is_acknowledged_and_not_by_silence(
        self, group: Group
    ) -> None:
        """A member without partitions, or with messages on their way, once passed for one at the end."""
        await group.publish_numbers(6)
        member = await group.join()
        at_once = await nothing_waits(member.subscription)
        taken = await member.take(6)
        await member.subscription.acknowledge(taken)

        await until(lambda: nothing_waits(member.subscription), "the broker says so", PATIENCE)

        assert not at_once

    async def test_what_another_member_has_not_acknowledged_is_not_the_end(
        self, rig: SubscriptionRig, group: Group
    ) -> None:
        """What a member had in its hands when it died once passed for taken, and a rebuild went live."""
        if rig.name == "rabbitmq":
            pytest.skip(
                "a queue counts what is ready, and gives back at once what a dead member had"
            )
        await group.publish_numbers(6)
        first = await group.join()
        taken = await first.take(6)
        second = await group.join()

        between = await nothing_waits(second.subscription)
        await first.subscription.acknowledge(taken)
        await first.subscription.close()

        async def has_reached_the_end() -> bool:
            # What had gone to the second before the first acknowledged it comes again.
            await second.subscription.acknowledge(await second.subscription.receive(6))
            return await nothing_waits(second.subscription)

        await until(has_reached_the_end, "the broker says so", PATIENCE)

        assert not between


@pytest.mark.faults
class TestEveryOutage(SubscriptionOutageContract):
    """Each broker in turn, on a server of its own."""

    @pytest.fixture
    def rig(self, own_server: Server) -> SubscriptionRig:
        if own_server.name not in RIGS:
            pytest.skip(f"nobody can listen to {own_server.name} yet")
        return OwnSubscriptionRig(own_server, RIGS[own_server.name](own_server))
