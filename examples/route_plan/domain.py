"""The domain: knows neither tables nor sessions."""

from dataclasses import dataclass, field

from pillarbox import AggregateRoot, DomainEvent


class RoutePlanned(DomainEvent):
    plan_id: str
    stops: list[str]


class StopAdded(DomainEvent):
    plan_id: str
    stop: str


@dataclass(eq=False)
class RoutePlan(AggregateRoot):
    """A route with its stops. `version` is the one that was read; None for a new plan."""

    id: str
    stops: list[str] = field(default_factory=list)
    version: int | None = None

    @classmethod
    def plan(cls, plan_id: str, stops: list[str]) -> "RoutePlan":
        plan = cls(plan_id, list(stops))
        plan.add_event(RoutePlanned(plan_id, plan.stops))
        return plan

    def add_stop(self, stop: str) -> None:
        self.stops.append(stop)
        self.add_event(StopAdded(self.id, stop))
