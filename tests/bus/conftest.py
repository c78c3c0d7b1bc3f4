from tests.bus.rigs import own_server, rig

__all__ = ["own_server", "rig"]
