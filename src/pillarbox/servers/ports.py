"""Choose free ports on the loopback interface."""

import random
import socket
from collections.abc import Sequence
from typing import Final

from pillarbox.servers.errors import ServerFailed

LOOPBACK: Final = "127.0.0.1"

# Below the ports that Linux (32768+) and Mac (49152+) give to outgoing connections: otherwise a
# client could take a killed server's port, or even connect to itself while it retries.
_FIRST: Final = 20_000
_LAST: Final = 32_000
_TRIES: Final = 500


def free_ports(names: Sequence[str], chooser: random.Random | None = None) -> dict[str, int]:
    """Give each name a port of its own that nobody listens on at this moment."""
    chosen: dict[str, int] = {}
    numbers = chooser or random.SystemRandom()
    for _ in range(_TRIES):
        if len(chosen) == len(names):
            break
        port = numbers.randint(_FIRST, _LAST)
        if port not in chosen.values() and is_free(port):
            chosen[names[len(chosen)]] = port
    else:
        raise ServerFailed("a free port", f"was not found between {_FIRST} and {_LAST}")
    return chosen


def is_free(port: int) -> bool:
    """Tell whether a server could listen on a port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
