"""The command `pillarbox`."""

import click

from pillarbox.cli.bus import bus
from pillarbox.cli.consumer import consumer
from pillarbox.cli.dev import dev
from pillarbox.cli.group import Group
from pillarbox.cli.projector import projector
from pillarbox.cli.schema import schema


@click.group(
    cls=Group,
    context_settings={"help_option_names": ["-h", "--help"]},
    examples=[
        "pillarbox dev                        start PostgreSQL and NATS for trying things out",
        "pillarbox schema apply               create or extend the tables",
        "pillarbox projector run --app app:box   move events to the bus until Ctrl-C",
        "pillarbox consumer run --app pay:box    take messages of other services into effect",
        "pillarbox schema check --json        find drift, for a pipeline",
    ],
)
@click.version_option(package_name="pillarbox", message="pillarbox %(version)s")
def main() -> None:
    """Deliver events reliably: transactional outbox, projector, inbox."""


main.add_command(bus)
main.add_command(consumer)
main.add_command(dev)
main.add_command(projector)
main.add_command(schema)
