"""`pillarbox consumer`: the daemon that takes messages into effect."""

import asyncio
import signal
from collections.abc import Sequence

import click

from pillarbox.app import Pillarbox
from pillarbox.cli.group import Group
from pillarbox.cli.logs import log_to_stderr
from pillarbox.cli.processes import run_in_processes, stop_with_parent
from pillarbox.consumer.consumer import Consumer
from pillarbox.database import shown
from pillarbox.errors import InvalidConfig
from pillarbox.load import load_app
from pillarbox.projector.collection import collect_seldom


@click.group(cls=Group)
def consumer() -> None:
    """Take messages of other services into effect, each once."""


@consumer.command(
    examples=[
        "pillarbox consumer run --app pay:box                      every consumer of the service",
        "pillarbox consumer run --app pay:box --consumer payments  one of them",
        "pillarbox consumer run --app pay:box --processes 4        four that share the work",
    ]
)
@click.option(
    "--app", metavar="MODULE:OBJECT", required=True, help="The Pillarbox of your application."
)
@click.option(
    "--consumer", "names", multiple=True, metavar="NAME", help="Run these consumers only."
)
@click.option("--processes", type=click.IntRange(1, 64), default=1, show_default=True)
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
@click.option("-q", "--quiet", is_flag=True, help="Log warnings only.")
@click.option("--with-parent", is_flag=True, hidden=True)
def run(
    *,
    app: str,
    names: tuple[str, ...],
    processes: int,
    verbose: bool,
    quiet: bool,
    with_parent: bool,
) -> None:
    """Handle messages until SIGTERM or Ctrl-C; a second signal does not wait for handlers.

    The database, the bus and the handlers are those of --app; the settings are
    PILLARBOX_CONSUMER_*.
    """
    log_to_stderr(verbose=verbose, quiet=quiet)
    box = load_app(app)
    chosen = _chosen(box, names)
    if processes > 1:
        run_in_processes(processes)
    for found in chosen:
        _announce(box, found)
    collect_seldom()
    asyncio.run(_serve(box, chosen, with_parent=with_parent))


def _chosen(box: Pillarbox, names: tuple[str, ...]) -> list[Consumer]:
    """Return the consumers of these names, or all."""
    if not box.consumers:
        raise InvalidConfig(
            "--app", "names a Pillarbox without consumers", "make one with box.consumer(…)"
        )
    if unknown := [name for name in names if name not in box.consumers]:
        known = ", ".join(box.consumers)
        raise InvalidConfig("--consumer", f"{unknown[0]!r} is unknown", f"use one of {known}")
    return [box.consumers[name] for name in names or box.consumers]


def _announce(box: Pillarbox, found: Consumer) -> None:
    click.echo(
        f"consumer {found.name} of {box.settings.service}: {', '.join(found.topics)} from "
        f"{box.bus.capabilities.rules.name} into {shown(box.engine.url)}; Ctrl-C ends it",
        err=True,
    )


async def _serve(box: Pillarbox, chosen: Sequence[Consumer], *, with_parent: bool) -> None:
    loop = asyncio.get_running_loop()

    def stop() -> None:
        for found in chosen:
            found.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    if with_parent:
        stop_with_parent(loop, stop)
    try:
        await box.check()
        async with asyncio.TaskGroup() as group:
            for found in chosen:
                group.create_task(found.run_forever(), name=f"pillarbox-{found.name}")
    except ExceptionGroup as failed:
        raise _first(failed) from failed
    finally:
        await box.bus.close()
        await box.engine.dispose()


def _first(failed: ExceptionGroup[Exception]) -> Exception:
    """Return what failed first: the others were ended because of it."""
    found: Exception = failed
    while isinstance(found, ExceptionGroup):
        found = found.exceptions[0]
    return found
