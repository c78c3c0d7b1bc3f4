"""`pillarbox dev`: a PostgreSQL and a NATS for this terminal."""

import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

import click
from sqlalchemy import create_engine

from pillarbox.database import sync_url
from pillarbox.schema import apply
from pillarbox.servers import Nats, Postgres, Server, ServerFailed, ServerUnavailable

_CHECK_SECONDS: Final = 1.0
_PORT: Final = click.IntRange(1, 65535)


class _Ended(BaseException):
    """The user asked for the end."""


@click.command()
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the data in this folder; without it they go when the command ends.",
)
@click.option("--postgres-port", type=_PORT, help="Port of PostgreSQL; a free one by default.")
@click.option("--nats-port", type=_PORT, help="Port of NATS; a free one by default.")
def dev(data: Path | None, postgres_port: int | None, nats_port: int | None) -> None:
    """Run PostgreSQL (with the tables) and NATS until Ctrl-C; print the two settings for them."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    postgres = Postgres(folder=_kept(data, "postgres"), port=postgres_port, database="pillarbox")
    try:
        with postgres, Nats(folder=_kept(data, "nats"), port=nats_port) as nats:
            _apply_schema(postgres.url)
            _announce(postgres, nats)
            _watch(postgres, nats)
    except _Ended:
        click.echo("Both servers are stopped.", err=True)
    except (ServerFailed, ServerUnavailable) as failed:
        raise click.ClickException(str(failed)) from failed


def _apply_schema(url: str) -> None:
    """Create the tables, so that a first program needs no other step."""
    engine = create_engine(sync_url(url))
    apply(engine)
    engine.dispose()


def _announce(postgres: Server, nats: Server) -> None:
    click.echo(f"export PILLARBOX_DATABASE_URL={postgres.url}")
    click.echo(f"export PILLARBOX_BUS_URL={nats.url}")
    click.echo(
        f"PostgreSQL {postgres.version} and NATS {nats.version} are ready. "
        "Paste the two lines into another terminal; Ctrl-C here stops both.",
        err=True,
    )


def _watch(*servers: Server) -> NoReturn:
    pause = threading.Event()
    while True:
        pause.wait(_CHECK_SECONDS)
        for server in servers:
            if not server.running:
                raise ServerFailed(server.name, "ended by itself", server.keep_logs())


def _kept(data: Path | None, name: str) -> Path | None:
    return None if data is None else data.absolute() / name


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    # The servers are being stopped: a second Ctrl-C must not cut that short.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise _Ended
