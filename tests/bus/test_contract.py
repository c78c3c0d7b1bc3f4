"""What every bus does, on the real broker."""

import pytest

from pillarbox.bus.message_bus import MessageBus
from pillarbox.testing import BusContract, BusRig

KAFKAS_GAP = (
    "the first message that a producer sends to a partition is refused, the next are stored"
)


class TestEveryBus(BusContract):
    """Each bus in turn, by the fixture `rig`."""

    @pytest.mark.parametrize("apart", [1, 5, 100])
    async def test_nothing_of_a_key_passes_its_refused_message_by_calls_that_overlap(
        self, rig: BusRig, bus: MessageBus, apart: int
    ) -> None:
        if rig.name == "kafka":
            pytest.xfail(KAFKAS_GAP)
        await super().test_nothing_of_a_key_passes_its_refused_message_by_calls_that_overlap(
            rig, bus, apart
        )
