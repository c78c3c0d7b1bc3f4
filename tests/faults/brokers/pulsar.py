"""Pulsar for the rig; its topics come with their first messages."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from tests.bus.rig_pulsar import KeptPulsar
from tests.faults.brokers.ground import Ground
from tests.faults.readers import pulsar as reader
from tests.faults.workload import TOPICS

# The broker's own time tells the order of events that one key has in two topics.
_TIMES: Final = "org.apache.pulsar.common.intercept.AppendBrokerTimestampMetadataInterceptor"


@contextmanager
def serve() -> Iterator[Ground]:
    """Run a broker that keeps what nobody has subscribed to, with the time of storing it."""
    server = KeptPulsar()
    server._settings["brokerEntryMetadataInterceptors"] = _TIMES
    with server:
        yield Ground(server, partial(reader.read, server.url, server.admin_url, TOPICS))
