"""Ask a Kafka for something until it answers: a busy machine may just have had it fenced.

A broker that stands still beyond its session is fenced for a moment, in which it makes nothing; and
a client whose first look falls into that moment does not look again for minutes. So each try has a
client of its own.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

LIMIT: Final = 40.0
TRY_SECONDS: Final = 5
_PAUSE_SECONDS: Final = 0.05

# Modules that import this one are passed over where the client is not installed.
_client: Any = pytest.importorskip("confluent_kafka")
_admin: Any = pytest.importorskip("confluent_kafka.admin")


def tell(bootstrap: str, ask: Callable[[Any], Any]) -> Any:
    """Ask by a client, for `TRY_SECONDS` each time, until there is an answer; return it, blocking.

    What is asked for may happen twice.
    """
    limit = time.monotonic() + LIMIT
    while True:
        # Held by its name until the answer: a client that nobody holds ends.
        client = _admin.AdminClient({"bootstrap.servers": bootstrap})
        try:
            return ask(client)
        except (TimeoutError, _client.KafkaException):
            if time.monotonic() > limit:
                raise
        time.sleep(_PAUSE_SECONDS)


def make_topic(
    bootstrap: str,
    topic: str,
    *,
    partitions: int = 1,
    copies: int = 1,
    config: Mapping[str, str] | None = None,
) -> None:
    """Make a topic; one that is there was made by a try whose answer was lost."""
    new = _admin.NewTopic(topic, partitions, copies, config=dict(config or {}))

    def make(client: Any) -> None:
        try:
            client.create_topics([new], operation_timeout=TRY_SECONDS)[topic].result(TRY_SECONDS)
        except _client.KafkaException as error:
            if error.args[0].code() != _client.KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    tell(bootstrap, make)
