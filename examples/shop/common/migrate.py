"""Bring a service's database to its newest migration; each service has its own in `migrations/`."""

from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, create_engine
from sqlalchemy.pool import NullPool

from pillarbox.database import sync_url

SHOP: Final = Path(__file__).parents[1]


def migrate(owner_url: str, service: str) -> None:
    """Run what is missing, in one transaction; as the owner, before the service starts."""
    engine = create_engine(sync_url(owner_url), poolclass=NullPool)
    with engine.begin() as connection:
        command.upgrade(alembic_of(service, connection), "head")


def alembic_of(service: str, connection: Connection) -> Config:
    """Return what Alembic's commands need for a service, as in `alembic_of("order", connection)`."""
    config = Config(attributes={"connection": connection})
    config.set_main_option("path_separator", "os")
    config.set_main_option("script_location", str(SHOP / "common" / "migrations"))
    config.set_main_option("version_locations", str(SHOP / f"{service}_service" / "migrations"))
    return config
