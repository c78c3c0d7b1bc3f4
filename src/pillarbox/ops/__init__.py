"""One service that reads the state of deliveries and acts on it."""

from pillarbox.ops.act import ActLimits, Done
from pillarbox.ops.acts import Ops
from pillarbox.ops.filters import EventFilter
from pillarbox.ops.gauges import read_gauges
from pillarbox.ops.state import State

__all__ = ["ActLimits", "Done", "EventFilter", "Ops", "State", "read_gauges"]
