"""The tests that every subscription must pass."""

from pillarbox.testing.subscription.content import ContentContract
from pillarbox.testing.subscription.life import LifeContract
from pillarbox.testing.subscription.members import MembersContract
from pillarbox.testing.subscription.order import OrderContract
from pillarbox.testing.subscription.outages import SubscriptionOutageContract


class SubscriptionContract(OrderContract, MembersContract, ContentContract, LifeContract):
    """Hold a subscription to the contract of `Subscription`, on its real broker.

        class TestMyBroker(SubscriptionContract):
            @pytest.fixture
            def rig(self) -> SubscriptionRig:
                return MyRig()

    Subclass it and give a fixture `rig`, in the class, its module or a conftest. A rig may have
    further powers; a test whose power it lacks is skipped with a sentence.
    """


__all__ = ["SubscriptionContract", "SubscriptionOutageContract"]
