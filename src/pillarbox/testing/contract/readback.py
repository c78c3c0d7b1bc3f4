"""Read a stored message with the official package for CloudEvents."""

from typing import Any, Final

import pytest

from pillarbox.testing.rig import Binding, Stored

_NEEDED: Final = "the official package reads the events: pip install 'pillarbox[testing]'"


def event_of(stored: Stored, binding: Binding) -> Any:
    """Return the event that the package finds, in binary or structured mode."""
    package = pytest.importorskip(f"cloudevents.core.bindings.{binding}", reason=_NEEDED)
    body, headers = stored.body or b"", stored.headers
    if binding == "kafka":
        encoded = {name: value.encode() for name, value in headers.items()}
        return package.from_kafka_event(package.KafkaMessage(encoded, stored.key, body))
    if binding == "http":
        return package.from_http_event(package.HTTPMessage(headers, body))
    properties = {"content-type": headers.get("content-type")}
    return package.from_amqp_event(package.AMQPMessage(properties, headers, body))
