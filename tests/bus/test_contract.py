"""What every bus does, on the real broker."""

from pillarbox.testing import BusContract


class TestEveryBus(BusContract):
    """Each bus in turn, by the fixture `rig`."""
