"""`pillarbox bus`: the broker's side of things."""

import asyncio
import os
from collections.abc import Sequence

import click

from pillarbox.bus.connect import bus_from_url
from pillarbox.bus.message_bus import MessageBus
from pillarbox.cli.group import Group
from pillarbox.cli.load import load_app
from pillarbox.errors import InvalidConfig
from pillarbox.event.rules import check_topic


@click.group(cls=Group)
def bus() -> None:
    """Prepare the broker that events go to."""


@bus.command(
    examples=[
        "pillarbox bus apply shop.order shop.payment     with PILLARBOX_BUS_URL",
        "pillarbox bus apply --app app:box shop.order    with the bus of your application",
    ]
)
@click.argument("topics", nargs=-1, required=True)
@click.option("--app", metavar="MODULE:OBJECT", help="The Pillarbox of your application.")
def apply(topics: tuple[str, ...], app: str | None) -> None:
    """Create what is missing for these topics: topics, streams, exchanges, queues.

    Only on this machine brokers get them by themselves. Safe to repeat.
    """
    made = asyncio.run(_apply(app, topics))
    for name in made:
        click.echo(f"made {name}")
    if not made:
        click.echo("nothing was missing")


async def _apply(app: str | None, topics: Sequence[str]) -> Sequence[str]:
    target = _bus_of(app)
    try:
        rules = target.capabilities.rules
        return await target.apply([check_topic(topic, rules) for topic in topics])
    finally:
        await target.close()


def _bus_of(app: str | None) -> MessageBus:
    if app is not None:
        return load_app(app).bus
    if not (url := os.environ.get("PILLARBOX_BUS_URL")):
        remedy = "set it to kafka://host:9092 or the like, or pass --app"
        raise InvalidConfig("PILLARBOX_BUS_URL", "is not set", remedy)
    return bus_from_url(url)
