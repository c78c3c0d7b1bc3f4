"""A database for each service, and two roles: one for the services, one for the projectors."""

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import psycopg
from psycopg import sql
from sqlalchemy import make_url

from examples.shop.common.migrate import migrate
from examples.shop.common.walls import APPLICATION_ROLE, PROJECTOR_ROLE

SERVICES: Final = {
    "orders": "order",
    "inventory": "inventory",
    "payments": "payment",
    "notifications": "notification",
}


@dataclass(frozen=True, slots=True)
class Database:
    """The addresses of one database: for its owner, the service, and the projector."""

    owner: str
    service: str
    projector: str


@contextmanager
def databases(admin: str) -> Iterator[Mapping[str, Database]]:
    """Make the databases on a server, with their tables; drop them at the end.

    `admin` must be allowed to create databases and roles.
    """
    made = _Made(admin, f"pillarbox_demo_{secrets.token_hex(3)}", secrets.token_urlsafe(16))
    try:
        yield made.create()
    finally:
        made.drop()


@dataclass(frozen=True, slots=True)
class _Made:
    admin: str
    prefix: str
    password: str

    def create(self) -> Mapping[str, Database]:
        for name in SERVICES:
            self._run("CREATE DATABASE {}", f"{self.prefix}_{name}")
        found = {name: self._database(f"{self.prefix}_{name}") for name in SERVICES}
        for name, service in SERVICES.items():
            migrate(found[name].owner, service)
        for role in (APPLICATION_ROLE, PROJECTOR_ROLE):
            with psycopg.connect(self.admin, autocommit=True) as connection:
                statement = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {} IN ROLE {}").format(
                    sql.Identifier(self._login(role)), self.password, sql.Identifier(role)
                )
                connection.execute(statement)
        return found

    def drop(self) -> None:
        for name in SERVICES:
            self._run("DROP DATABASE IF EXISTS {} WITH (FORCE)", f"{self.prefix}_{name}")
        for role in (APPLICATION_ROLE, PROJECTOR_ROLE):
            self._run("DROP ROLE IF EXISTS {}", self._login(role))

    def _run(self, statement: str, name: str) -> None:
        with psycopg.connect(self.admin, autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(sql.Identifier(name)))

    def _login(self, role: str) -> str:
        return f"{self.prefix}_{role.removeprefix('pillarbox_')}"

    def _database(self, name: str) -> Database:
        owner = make_url(self.admin).set(drivername="postgresql", database=name)
        service, projector = (
            owner.set(username=self._login(role), password=self.password)
            for role in (APPLICATION_ROLE, PROJECTOR_ROLE)
        )
        return Database(*(url.render_as_string(False) for url in (owner, service, projector)))
