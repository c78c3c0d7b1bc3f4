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


def drill_bus(url: str, admin: str = "", *, patient: bool = False) -> Any:
    """Make the bus of a member or of a publisher; `admin` is the address of Pulsar's interface.

    A patient one has the broker wait for slow members as long as it does by itself.
    """
    chosen = {} if patient else _OPTIONS[url.partition("://")[0]]
    options = {"partitions": PARTITIONS, **chosen}
    if admin:
        options["admin_url"] = admin
    return bus_of(url, _LIMIT, **options)
