"""The buses of the drills: with partitions, so that keys are in order, and quick to miss a member."""

from datetime import timedelta
from typing import Any, Final

from tests.faults.projector_process import bus_of

PARTITIONS: Final = 8
_LIMIT: Final = timedelta(seconds=30)
_MEMBER: Final = timedelta(seconds=3)
_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "amqp": {},
    "kafka": {"settings": {"session.timeout.ms": 4_000, "heartbeat.interval.ms": 800}},
    "nats": {"ack_wait": _MEMBER},
    "pulsar": {},
    "redis": {"member_timeout": _MEMBER},
}
# With other brokers the above is all: NATS waits for three seconds, RabbitMQ as its server is told.
_HURRIED: Final[dict[str, dict[str, Any]]] = {
    "kafka": {"settings": {**_OPTIONS["kafka"]["settings"], "max.poll.interval.ms": 6_000}},
}


def drill_bus(url: str, admin: str = "", *, patient: bool = False, hurried: bool = False) -> Any:
    """Make the bus of a member or of a publisher; `admin` is the address of Pulsar's interface.

    A patient one has the broker wait for slow members as long as it does by itself, a hurried one
    as short as it can.
    """
    kind = url.partition("://")[0]
    chosen = {} if patient else _HURRIED.get(kind, _OPTIONS[kind]) if hurried else _OPTIONS[kind]
    options = {"partitions": PARTITIONS, **chosen}
    if admin:
        options["admin_url"] = admin
    return bus_of(url, _LIMIT, **options)
