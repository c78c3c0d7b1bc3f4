"""`pillarbox bus`: the broker's side of things."""

import asyncio
import os
from collections.abc import Sequence

import click

from pillarbox.bus.connect import bus_from_url
from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.subscription import PreparingBus, SubscriptionRequest
from pillarbox.cli.group import Group
from pillarbox.errors import InvalidConfig
from pillarbox.event.rules import check_topic
from pillarbox.load import load_app


@click.group(cls=Group)
def bus() -> None:
    """Prepare the broker that events go to."""


@bus.command(
    examples=[
        "pillarbox bus apply shop.order shop.payment     with PILLARBOX_BUS_URL",
        "pillarbox bus apply --app app:box               what the application's consumers need",
        "pillarbox bus apply --app app:box shop.order    and a topic that it only publishes",
    ]
)
@click.argument("topics", nargs=-1)
@click.option("--app", metavar="MODULE:OBJECT", help="The Pillarbox of your application.")
def apply(topics: tuple[str, ...], app: str | None) -> None:
    """Create what is missing for these topics, and for the consumers of an application.

    Topics, streams, exchanges, queues, subscriptions: only on this machine brokers get them by
    themselves. What is published before a consumer's first start is kept for it. Safe to repeat.
    """
    made = asyncio.run(_apply(app, topics))
    for name in made:
        click.echo(f"made {name}")
    if not made:
        click.echo("nothing was missing")


async def _apply(app: str | None, topics: Sequence[str]) -> Sequence[str]:
    box = None if app is None else load_app(app)
    consumers = [] if box is None else [made.request for made in box.consumers.values()]
    if not (topics or consumers):
        remedy = "name topics, or an application that has consumers by --app"
        raise InvalidConfig("topics", "are not named", remedy)
    target = _bus_of_variables() if box is None else box.bus
    try:
        return await _made(target, topics, consumers)
    finally:
        await target.close()


async def _made(
    target: MessageBus, topics: Sequence[str], consumers: Sequence[SubscriptionRequest]
) -> Sequence[str]:
    rules = target.capabilities.rules
    wanted = [check_topic(topic, rules) for topic in topics]
    if isinstance(target, PreparingBus):
        made = [*await target.apply(wanted)] if wanted else []
        return [*made, *await target.prepare(consumers)]
    # Elsewhere a topic keeps its events for whoever comes later, from the first one on.
    read = [check_topic(topic, rules) for request in consumers for topic in request.topics]
    return await target.apply([*dict.fromkeys((*wanted, *read))])


def _bus_of_variables() -> MessageBus:
    if not (url := os.environ.get("PILLARBOX_BUS_URL")):
        remedy = "set it to kafka://host:9092 or the like, or pass --app"
        raise InvalidConfig("PILLARBOX_BUS_URL", "is not set", remedy)
    return bus_from_url(url)
