"""`pillarbox projector`: the daemon that moves events to the bus."""

import asyncio
import signal
from typing import Literal

import click

from pillarbox.app import Pillarbox
from pillarbox.cli import event_loop
from pillarbox.cli.group import Group
from pillarbox.cli.logs import log_to_stderr
from pillarbox.cli.processes import run_in_processes, stop_with_parent
from pillarbox.database import shown
from pillarbox.load import load_app
from pillarbox.projector.collection import collect_seldom
from pillarbox.projector.projector import OutboxProjector

Mode = Literal["continuous", "drain", "once"]


@click.group(cls=Group)
def projector() -> None:
    """Move events from the outbox to the bus."""


@projector.command(
    examples=[
        "pillarbox projector run --app app:box                one process",
        "pillarbox projector run --app app:box --processes 4  four that share the work",
        "pillarbox projector run --mode drain                 until nothing is left; settings only",
    ]
)
@click.option("--app", metavar="MODULE:OBJECT", help="The Pillarbox of your application.")
@click.option(
    "--mode",
    type=click.Choice(["continuous", "drain", "once"]),
    default="continuous",
    show_default=True,
    help="Until a signal, until nothing is left, or one batch.",
)
@click.option("--processes", type=click.IntRange(1, 64), default=1, show_default=True)
@click.option("--tenant", "tenants", multiple=True, metavar="ID", help="Serve these tenants only.")
@click.option("--bucket", metavar="K/N", help="Serve the tenants of one bucket of N.")
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
@click.option("-q", "--quiet", is_flag=True, help="Log warnings only.")
@click.option("--with-parent", is_flag=True, hidden=True)
def run(
    *,
    app: str | None,
    mode: Mode,
    processes: int,
    tenants: tuple[str, ...],
    bucket: str | None,
    verbose: bool,
    quiet: bool,
    with_parent: bool,
) -> None:
    """Publish events until SIGTERM or Ctrl-C; a second signal does not wait for answers.

    The database and the bus are those of --app, else of PILLARBOX_DATABASE_URL and
    PILLARBOX_BUS_URL; the settings are PILLARBOX_PROJECTOR_*.
    """
    log_to_stderr(verbose=verbose, quiet=quiet)
    box = load_app(app)
    worker = box.projector(tenants or None, bucket=bucket)
    if processes > 1:
        run_in_processes(processes)
    _announce(box)
    collect_seldom()
    sent = event_loop.run(_serve(box, worker, mode, with_parent=with_parent))
    if mode != "continuous":
        click.echo(f"events_sent={sent}")


def _announce(box: Pillarbox) -> None:
    click.echo(
        f"projector of {box.settings.service}: {shown(box.engine.url)} to "
        f"{box.bus.capabilities.rules.name}; Ctrl-C ends it",
        err=True,
    )


async def _serve(box: Pillarbox, worker: OutboxProjector, mode: Mode, *, with_parent: bool) -> int:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, worker.stop)
    if with_parent:
        stop_with_parent(loop, worker.stop)
    try:
        match mode:
            case "drain":
                return await worker.drain()
            case "once":
                return await worker.run_once()
            case "continuous":
                await worker.run_forever()
                return 0
    finally:
        await box.bus.close()
        await box.engine.dispose()
