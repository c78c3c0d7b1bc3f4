"""A connection that takes a large answer in one go, as far as it has arrived."""

from select import POLLIN, poll
from typing import Any, TypeVar

from psycopg import AsyncConnection
from psycopg.abc import PQGen
from psycopg.waiting import READY_R, WAIT_R, Ready

RV = TypeVar("RV")

_AT_ONCE = 0
_INTERVAL = 0.1


class EagerConnection(AsyncConnection[Any]):
    """Look at the socket before waiting for it on the event loop.

    The server sends in pieces of 8 kB. A turn of the event loop for each of them costs more than
    reading the rows in it: 4.2 µs a row, and 2.5 µs like this.
    """

    async def wait(
        self,
        gen: PQGen[RV],
        interval: float = _INTERVAL,
        timeout: float | None = None,  # noqa: ASYNC109 - psycopg's signature
    ) -> RV:
        """Perform a statement; cancelled, it is ended at the server too, as in psycopg."""
        return await super().wait(eager(gen, self.pgconn.socket), interval, timeout)


def eager(gen: PQGen[RV], socket: int) -> PQGen[RV]:
    """Ask the caller to wait only when nothing has arrived."""
    arrived = poll()
    arrived.register(socket, POLLIN)
    try:
        wanted = next(gen)
        while True:
            ready: Ready | int = READY_R
            if wanted != WAIT_R or not arrived.poll(_AT_ONCE):
                ready = yield wanted
            wanted = gen.send(ready)
    except StopIteration as end:
        result: RV = end.value
        return result
