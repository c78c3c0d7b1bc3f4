"""Pulsar's client: where it connects to, and how it is made and let go."""

import asyncio
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from threading import Thread
from typing import Any, Final

from pulsar import Client, FileLogger, LoggerLevel, PulsarException

from pillarbox.bus.loopback import all_loopback, host_of
from pillarbox.bus.pulsar.threads import Threads
from pillarbox.errors import InvalidConfig

_log = logging.getLogger("pillarbox.bus.pulsar")

_CLIENT_PORT: Final = ":6650"
_ADMIN_PORT: Final = ":8080"
_SCHEMES: Final = ("pulsar", "pulsar+ssl")
_SECOND: Final = 1_000


def checked_url(url: str) -> str:
    """Return a URL that names servers and nothing else; errors never repeat it."""
    scheme, _, servers = url.partition("://")
    if scheme not in _SCHEMES or not servers:
        raise InvalidConfig("bus", "names no server", "write pulsar://host:port or pulsar+ssl://…")
    if "@" in servers or "?" in servers:
        raise InvalidConfig(
            "bus",
            "holds more than servers",
            "write pulsar://host:port, and give tokens and certificates to "
            "PulsarMessageBus(options={'authentication': …})",
        )
    return url


def hosts_of(url: str) -> list[str]:
    """Return the hosts of a URL of Pulsar's."""
    servers = url.partition("://")[2].rstrip("/")
    return [host_of(part) for part in servers.split(",")]


def admin_url_of(url: str) -> str | None:
    """Return the admin interface of a server on this machine that has Pulsar's own ports."""
    servers = url.partition("://")[2].rstrip("/")
    if all_loopback(hosts_of(url)) and servers.endswith(_CLIENT_PORT):
        return f"http://{servers.removesuffix(_CLIENT_PORT)}{_ADMIN_PORT}"
    return None


def verifies(options: Mapping[str, Any]) -> bool:
    """Tell whether a client with these options verifies certificates and their host names."""
    careless = options.get("tls_allow_insecure_connection", False)
    return options.get("tls_validate_hostname", True) is True and not careless


def make_client(url: str, limit: timedelta, options: Mapping[str, Any]) -> Client:
    """Make a client that verifies certificates with their host names; it connects later."""
    seconds = max(1, int(limit.total_seconds()))
    return Client(
        checked_url(url),
        **{
            "operation_timeout_seconds": seconds,
            "connection_timeout_ms": seconds * _SECOND,
            "tls_validate_hostname": True,
            # Its lines repeat what outcomes say, and a Python logger may stop its threads for good.
            "logger": FileLogger(LoggerLevel.Error, os.devnull),
            **options,
        },
    )


async def shut_down(client: Client, seconds: float, opening: Threads | None = None) -> None:
    """Let go of a client within a limit; `opening` are the closed threads that open producers.

    In a thread of its own, since it may stay longer, and the loop waits for those it lends. It
    waits for the openings: one whose client is closed meanwhile never returns, or returns a
    producer that is none and crashes the process. The client's `shutdown` would be quicker, but
    keeps the interpreter while it waits for threads that may need it.
    """
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()

    def work() -> None:
        if opening is not None:
            opening.join()
        try:
            client.close()
        except PulsarException as error:
            _log.debug("pulsar_client_let_go", extra={"reason": str(error)})
        with suppress(RuntimeError):  # The loop is closed, and nobody waits any more.
            loop.call_soon_threadsafe(gone.set)

    Thread(target=work, name="pillarbox-pulsar-close", daemon=True).start()
    with suppress(TimeoutError):
        await asyncio.wait_for(gone.wait(), seconds)
