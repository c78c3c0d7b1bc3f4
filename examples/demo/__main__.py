"""Run the demo: `make demo`. `PILLARBOX_DEMO_SECONDS` ends it by itself, else `q` or Ctrl-C does."""

import asyncio
import os
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import psycopg

from examples.demo.crew import PartFailed, subscribed
from examples.demo.databases import databases
from examples.demo.run import Ground, run
from examples.demo.settings import Settings
from examples.demo.view import Screen
from pillarbox import PillarboxError
from pillarbox.servers import Nats, Postgres, Server

_POSTGRES: Final = {"max_connections": 300}


def main() -> int:
    """Start what is missing, run the demo, and say in the last line how it went."""
    begun = time.monotonic()
    screen = Screen()
    folder = Path(tempfile.mkdtemp(prefix="pillarbox-demo-"))
    try:
        with ExitStack() as stack:
            code = _demo(Settings.of(os.environ), folder, screen, stack, begun)
    except psycopg.OperationalError as error:
        screen.say(f"the database cannot be used: {str(error).splitlines()[0]}")
        code = 1
    except psycopg.errors.InsufficientPrivilege as error:
        screen.say(f"PILLARBOX_DATABASE_URL: {error.diag.message_primary}")
        screen.say("the demo makes databases and roles: ALTER ROLE … CREATEDB CREATEROLE")
        code = 1
    except (PillarboxError, PartFailed) as error:
        screen.say(str(error))
        code = 1
    if code == 0 or not any(folder.iterdir()):
        shutil.rmtree(folder)
    else:
        screen.say(f"the logs of the processes are in {folder}")
    return code


def _demo(settings: Settings, folder: Path, screen: Screen, stack: ExitStack, begun: float) -> int:
    postgres = None if settings.database else Postgres(settings=_POSTGRES)
    broker = None if settings.bus else Nats()
    _start([each for each in (postgres, broker) if each is not None], screen, stack)
    admin = settings.database or (postgres.url if postgres else "")
    bus = settings.bus or (broker.url if broker else "")
    with subscribed(bus, admin, settings.flow):
        screen.say("making a database for each of the four services, with its tables and roles")
        made = stack.enter_context(databases(admin))
    ground = Ground(made, bus, broker, _names(postgres, broker), begun)
    return asyncio.run(run(settings, ground, folder, screen))


def _start(servers: list[Server], screen: Screen, stack: ExitStack) -> None:
    if not servers:
        return
    screen.say(f"starting {' and '.join(each.name for each in servers)} from their wheels")
    with ThreadPoolExecutor(len(servers)) as pool:
        for server in pool.map(lambda each: each.start(), servers):
            stack.callback(server.stop)


def _names(postgres: Server | None, broker: Server | None) -> str:
    database = f"PostgreSQL {postgres.version}" if postgres else "your PostgreSQL"
    return f"{database}, {f'NATS {broker.version}' if broker else 'your broker'}"


if __name__ == "__main__":
    sys.exit(main())
