"""Run PostgreSQL."""

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pillarbox.servers.account import (
    Account,
    reachable,
    readable_copy,
    unprivileged_account,
)
from pillarbox.servers.custody import Command
from pillarbox.servers.errors import ServerUnavailable
from pillarbox.servers.locate import find_postgres
from pillarbox.servers.ports import LOOPBACK
from pillarbox.servers.server import Server

if TYPE_CHECKING:
    import psycopg

_INITDB_SECONDS: Final = 60.0
_CONNECT_SECONDS: Final = 10
_PROBE_SECONDS: Final = 2


class Postgres(Server):
    """PostgreSQL with the superuser `postgres`, trusted from the loopback interface alone.

    Settings are those of `postgresql.conf`; fsync is on unless they say otherwise.

        with Postgres(version=18, settings={"max_connections": 300}) as postgres:
            url = postgres.create_database("shop")
    """

    stop_signal = signal.SIGINT  # the fast shutdown: sessions end, data are written
    end_signal = signal.SIGQUIT  # the immediate shutdown gives shared memory back

    def __init__(
        self,
        version: int = 18,
        *,
        settings: Mapping[str, str | float] | None = None,
        folder: Path | None = None,
        port: int | None = None,
        user: str = "postgres",
        database: str = "postgres",
    ) -> None:
        super().__init__(folder=folder, ports={} if port is None else {"client": port})
        self.name = f"postgres{version}"
        self.major = version
        self.user = user
        self.database = database
        self._settings = dict(settings or {})
        self._programs = Path()

    @property
    def url(self) -> str:
        """The address of the default database."""
        return self.url_of(self.database)

    @property
    def data(self) -> Path:
        """The data folder of the cluster."""
        return self.folder / "data"

    @property
    def programs(self) -> Path:
        """The folder of `psql`'s neighbours: `initdb`, `pg_ctl`, `pg_basebackup`."""
        return self._programs

    def url_of(self, database: str) -> str:
        """Return the address of a database."""
        return f"postgresql://{self.user}@{LOOPBACK}:{self.port}/{database}"

    def create_database(self, name: str, *, template: str = "template1") -> str:
        """Create a database and return its address."""
        from psycopg import sql  # noqa: PLC0415 - needs libpq, which only this server needs

        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
        with self._connect("postgres") as connection:
            connection.execute(statement.format(sql.Identifier(name), sql.Identifier(template)))
        return self.url_of(name)

    def drop_database(self, name: str) -> None:
        """Drop a database with whoever is connected to it."""
        from psycopg import sql  # noqa: PLC0415 - needs libpq, which only this server needs

        statement = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
        with self._connect("postgres") as connection:
            connection.execute(statement.format(sql.Identifier(name)))

    def _account(self) -> Account | None:
        return unprivileged_account(self.name)

    def _locate(self) -> None:
        self._programs = find_postgres(self.major)
        try:
            import psycopg  # noqa: F401, PLC0415 - needs libpq, which only this server needs
        except ImportError as missing:
            remedy = "run `pip install 'psycopg[binary]'`"
            raise ServerUnavailable(self.name, "psycopg finds no libpq", remedy) from missing

    def _prepare(self) -> None:
        account = self._account()
        if account is not None and not reachable(self.folder, account):
            raise self._failure(f"runs as {account.name}, who cannot reach {self.folder}")
        if account is not None and not reachable(self._programs / "postgres", account):
            # E.g. a virtual environment in root's home: our unprivileged user cannot go there.
            package = self._programs.parent.parent
            copy = readable_copy(package, self.folder / "programs")
            self._programs = copy / self._programs.relative_to(package)
        if not (self.data / "PG_VERSION").exists():
            self._run(self._initdb(), _INITDB_SECONDS)

    def _initdb(self) -> Command:
        options = ("--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
        argv = (self._programs / "initdb", "-D", self.data, "-U", self.user, *options)
        return Command(argv)

    def _command(self) -> Command:
        settings: dict[str, str | float] = {
            "port": self.port,
            "listen_addresses": LOOPBACK,
            "unix_socket_directories": "",
            "logging_collector": "off",
            **self._settings,
        }
        options = [f"--{name}={value}" for name, value in settings.items()]
        return Command((self._programs / "postgres", "-D", self.data, *options))

    def _probe(self) -> str | None:
        import psycopg  # noqa: PLC0415 - needs libpq, which only this server needs

        try:
            with self._connect("postgres", _PROBE_SECONDS) as connection:
                row = connection.execute(
                    "SELECT current_setting('data_directory'), current_setting('server_version')"
                ).fetchone()
                if row is None or Path(row[0]).resolve() != self.data:
                    return None
                self._ensure_database(connection)
                return str(row[1])
        except psycopg.OperationalError:
            return None

    def _ensure_database(self, connection: "psycopg.Connection") -> None:
        found = connection.execute(
            "SELECT 1 FROM pg_database WHERE datname = %s", [self.database]
        ).fetchone()
        if found is None:
            self.create_database(self.database)

    def _connect(self, database: str, seconds: int = _CONNECT_SECONDS) -> "psycopg.Connection":
        import psycopg  # noqa: PLC0415 - needs libpq, which only this server needs

        return psycopg.connect(self.url_of(database), autocommit=True, connect_timeout=seconds)
