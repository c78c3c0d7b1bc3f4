"""Ask servers one short question over TCP."""

import socket
import time
from collections.abc import Callable
from typing import Final

from pillarbox.servers.ports import LOOPBACK
from pillarbox.servers.tls import TlsFiles

_SECONDS: Final = 2.0
_LIMIT: Final = 1 << 20


def ask(
    port: int,
    question: bytes,
    complete: Callable[[bytes], bool],
    *,
    host: str = LOOPBACK,
    tls: TlsFiles | None = None,
) -> bytes:
    """Send bytes to a port and return the answer once it is complete.

    Raises `OSError` when nobody answers in time, or with another certificate than that of `tls`.
    """
    with socket.create_connection((host, port), timeout=_SECONDS) as connection:
        if tls is None:
            return _answer(connection, question, complete)
        with tls.checking().wrap_socket(connection) as wrapped:
            if not tls.is_shown_by(wrapped):
                raise ConnectionRefusedError
            return _answer(wrapped, question, complete)


def _answer(connection: socket.socket, question: bytes, complete: Callable[[bytes], bool]) -> bytes:
    deadline = time.monotonic() + _SECONDS
    answer = b""
    connection.sendall(question)
    while not complete(answer):
        if time.monotonic() > deadline or len(answer) > _LIMIT:
            raise TimeoutError
        chunk = connection.recv(65536)
        if not chunk:
            raise ConnectionResetError
        answer += chunk
    return answer
