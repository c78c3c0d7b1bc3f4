"""A service's database, bus and settings, from the environment."""

import os
from typing import Final

from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from examples.shop.common.bus import open_bus
from pillarbox import Pillarbox
from pillarbox.database import async_url
from pillarbox.errors import InvalidConfig

OPEN: Final = 20
IDLE: Final = 10
LIFETIME_SECONDS: Final = 300


def open_box(service: str) -> Pillarbox:
    """Read `DATABASE_URL` and `PILLARBOX_BUS_URL`; every row of the shop belongs to a tenant."""
    environ = {**os.environ, "PILLARBOX_TENANCY": "required"}
    return Pillarbox(open_engine(database_url()), open_bus(), service=service, environ=environ)


def open_engine(url: str) -> AsyncEngine:
    """Make an engine that keeps ten connections, opens ten more, and replaces old ones."""
    return create_async_engine(
        async_url(url),
        pool_size=IDLE,
        max_overflow=OPEN - IDLE,
        pool_recycle=LIFETIME_SECONDS,
        pool_pre_ping=True,
    )


def database_url() -> str:
    """Return the address of the service's own database."""
    return _required(
        "DATABASE_URL", "set it to postgresql://user@host/database, or run `make demo`"
    )


def operator_database_url() -> str:
    """Return the same for the projector's role, which alone sees the events of all tenants."""
    remedy = "set it to the projector's role: by any other, /health would say 0 while events wait"
    return _required("OPERATOR_DATABASE_URL", remedy)


def _required(name: str, remedy: str) -> str:
    url = os.environ.get(name)
    if not url:
        raise InvalidConfig(name, "is not set", remedy)
    return url
