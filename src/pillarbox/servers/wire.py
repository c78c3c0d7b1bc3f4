"""Ask servers one short question over TCP."""

import socket
import time
from collections.abc import Callable
from typing import Final

from pillarbox.servers.ports import LOOPBACK

_SECONDS: Final = 2.0
_LIMIT: Final = 1 << 20


def ask(port: int, question: bytes, complete: Callable[[bytes], bool]) -> bytes:
    """Send bytes to a loopback port and return the answer once it is complete.

    Raises `OSError` when nobody answers in time.
    """
    deadline = time.monotonic() + _SECONDS
    answer = b""
    with socket.create_connection((LOOPBACK, port), timeout=_SECONDS) as connection:
        connection.sendall(question)
        while not complete(answer):
            if time.monotonic() > deadline or len(answer) > _LIMIT:
                raise TimeoutError
            chunk = connection.recv(65536)
            if not chunk:
                raise ConnectionResetError
            answer += chunk
    return answer
