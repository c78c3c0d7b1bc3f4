"""Redis for the rig; its streams come with their first entries."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from pillarbox.servers import Redis
from tests.faults.brokers.ground import Ground
from tests.faults.readers import redis as reader


@contextmanager
def serve() -> Iterator[Ground]:
    """Run a server that writes to its file before it answers."""
    with Redis() as server:
        yield Ground(server, partial(reader.read, server.url))
