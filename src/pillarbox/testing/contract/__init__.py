"""The tests that every bus must pass."""

from pillarbox.testing.contract.content import ContentContract
from pillarbox.testing.contract.failures import FailureContract
from pillarbox.testing.contract.life import LifeContract
from pillarbox.testing.contract.lines import LineContract
from pillarbox.testing.contract.order import OrderContract
from pillarbox.testing.contract.outages import BusOutageContract


class BusContract(OrderContract, ContentContract, FailureContract, LineContract, LifeContract):
    """Hold a bus to the contract of `MessageBus`, on its real broker.

        class TestMyBus(BusContract):
            @pytest.fixture
            def rig(self) -> BusRig:
                return MyRig()

    Subclass it and give a fixture `rig`, in the class, its module or a conftest. A rig may have
    further powers; a test whose power it lacks is skipped with a sentence.
    """


__all__ = ["BusContract", "BusOutageContract"]
