"""Run PgBouncer in front of a PostgreSQL of ours."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pillarbox.servers.account import Account, unprivileged_account
from pillarbox.servers.custody import Command
from pillarbox.servers.locate import find_pgbouncer
from pillarbox.servers.ports import LOOPBACK
from pillarbox.servers.postgres import Postgres
from pillarbox.servers.server import Server

_CONFIG: Final = """\
[databases]
* = host={host} port={upstream}

[pgbouncer]
listen_addr = {host}
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
admin_users = {user}
pool_mode = {pool_mode}
default_pool_size = {pool_size}
max_client_conn = 1000
server_reset_query_always = 0
ignore_startup_parameters = extra_float_digits,options
"""
_VERSION_SECONDS: Final = 10.0
_CONNECT_SECONDS: Final = 2


class PgBouncer(Server):
    """PgBouncer in front of every database of one PostgreSQL.

    It lets in the upstream's superuser and the roles that are named.
    """

    name = "pgbouncer"

    def __init__(
        self,
        upstream: Postgres,
        *,
        pool_mode: str = "transaction",
        pool_size: int = 20,
        roles: Sequence[str] = (),
        port: int | None = None,
    ) -> None:
        super().__init__(ports={} if port is None else {"client": port})
        self.upstream = upstream
        self.pool_mode = pool_mode
        self.pool_size = pool_size
        self.roles = (upstream.user, *roles)
        self._program = Path()

    @property
    def url(self) -> str:
        """The address of the upstream's default database, through the pool."""
        return self.url_of(self.upstream.database)

    def url_of(self, database: str) -> str:
        """Return the address of a database of the upstream, through the pool."""
        return f"postgresql://{self.upstream.user}@{LOOPBACK}:{self.port}/{database}"

    def _account(self) -> Account | None:
        return unprivileged_account(self.name)

    def _locate(self) -> None:
        self._program = find_pgbouncer()

    @property
    def _config(self) -> Path:
        return self.folder / "pgbouncer.ini"

    def _prepare(self) -> None:
        users = self.folder / "users.txt"
        users.write_text("".join(f'"{role}" ""\n' for role in self.roles), encoding="utf-8")
        users.chmod(0o644)
        text = _CONFIG.format(
            users=users,
            host=LOOPBACK,
            port=self.port,
            upstream=self.upstream.port,
            user=self.upstream.user,
            pool_mode=self.pool_mode,
            pool_size=self.pool_size,
        )
        self._config.write_text(text, encoding="utf-8")
        self._config.chmod(0o644)

    def _command(self) -> Command:
        return Command((self._program, self._config))

    def _probe(self) -> str | None:
        import psycopg  # noqa: PLC0415 - needs libpq, which only this server needs

        try:
            with psycopg.connect(
                self.url_of("pgbouncer"), autocommit=True, connect_timeout=_CONNECT_SECONDS
            ) as console:
                rows = console.execute("SHOW CONFIG").fetchall()
        except psycopg.OperationalError:
            return None
        return self._asked_version() if ("conffile", str(self._config)) in _pairs(rows) else None

    def _asked_version(self) -> str:
        told = subprocess.run(
            [self._program, "--version"],
            check=False,
            capture_output=True,
            text=True,
            timeout=_VERSION_SECONDS,
        ).stdout
        return told.splitlines()[0].removeprefix("PgBouncer ")


def _pairs(rows: list[tuple[str, ...]]) -> set[tuple[str, str]]:
    return {(row[0], row[1]) for row in rows}
