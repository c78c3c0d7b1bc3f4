"""Install and list the real servers: `python -m pillarbox.servers install`."""

import sys

import click

from pillarbox.servers.errors import ServerUnavailable
from pillarbox.servers.install import Installation
from pillarbox.servers.locate import LOCATORS


@click.group()
def servers() -> None:
    """Install and list the servers that tests, demo and benchmarks run on."""


@servers.command()
def install() -> None:
    """Install what is missing; exit 1 and name it when something cannot be installed."""
    problems = Installation(say=click.echo).run()
    for name, problem in problems.items():
        click.echo(f"{name}: NOT INSTALLED: {problem}", err=True)
    sys.exit(1 if problems else 0)


@servers.command(name="list")
def list_servers() -> None:
    """Print where each server was found, or what is missing."""
    for name, locate in LOCATORS.items():
        try:
            found = str(locate())
        except ServerUnavailable as missing:
            found = f"missing: {missing.problem}; {missing.remedy}"
        click.echo(f"{name:<12}{found}")


if __name__ == "__main__":
    servers(prog_name="python -m pillarbox.servers")
