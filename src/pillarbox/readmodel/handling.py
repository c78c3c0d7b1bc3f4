"""From an event to its method: the routes of a consumer, with a read model behind them."""

from collections.abc import Awaitable, Callable
from typing import Any

from pillarbox.consumer.context import Context
from pillarbox.consumer.routes import Routes
from pillarbox.event.incoming import ReadingRules
from pillarbox.event.registry import EventRegistry
from pillarbox.readmodel.definition import EventMethod, ReadModel

Take = Callable[[EventMethod, Any, Context], Awaitable[None]]
"""Call a method for an event, and see to it that its changes take effect."""


def routes_of(
    model: ReadModel, take: Take, registry: EventRegistry | None, rules: ReadingRules
) -> Routes:
    """Return routes that lead each event of a model to its method; other types are passed over."""
    routes = Routes(registry, rules=rules, ignore_unknown=True)
    for event_type, method in model.methods().items():
        routes.add(event_type, _handler(method, take))
    return routes


def _handler(method: EventMethod, take: Take) -> Callable[..., Awaitable[None]]:
    async def handle(event: Any, ctx: Context) -> None:
        await take(method, event, ctx)

    # The consumer converts the event to what the method's annotation says.
    handle.__annotations__ = {"event": method.model, "ctx": Context, "return": None}
    handle.__qualname__ = method.name
    return handle
