"""One service that reads the state of deliveries and acts on it."""

from pillarbox.ops.act import ActLimits, Done
from pillarbox.ops.acts import Ops
from pillarbox.ops.filters import EventFilter
from pillarbox.ops.gauges import read_gauges
from pillarbox.ops.parked import ParkedOps
from pillarbox.ops.parked_filter import ParkedFilter
from pillarbox.ops.readmodels import ModelView, ReadModelOps
from pillarbox.ops.saga_views import SagaFilter
from pillarbox.ops.sagas import SagaOps, read_saga_gauges
from pillarbox.ops.state import State

__all__ = [
    "ActLimits",
    "Done",
    "EventFilter",
    "ModelView",
    "Ops",
    "ParkedFilter",
    "ParkedOps",
    "ReadModelOps",
    "SagaFilter",
    "SagaOps",
    "State",
    "read_gauges",
    "read_saga_gauges",
]
