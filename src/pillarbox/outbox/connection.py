"""What a bare connection's running transaction will record."""

from collections.abc import Iterable
from typing import Any, Final

from sqlalchemy import Connection, Engine, event
from sqlalchemy.pool import ConnectionPoolEntry

from pillarbox.errors import TenantMismatch
from pillarbox.outbox.row import EventRow
from pillarbox.outbox.settings import CaptureSettings
from pillarbox.outbox.wakeup import wakeup_of
from pillarbox.outbox.write import refuse_autocommit, write_events
from pillarbox.tenancy import enter_tenant

_OPTION: Final = "pillarbox_capture"
_COMMITTING: Final = "pillarbox_committing"


class ConnectionCapture:
    """Buffer the rows of one connection until just before its commit."""

    def __init__(self, connection: Connection, settings: CaptureSettings) -> None:
        self._connection = connection
        self._settings = settings
        self._rows: list[EventRow] = []
        self._tenant_id: str | None = None
        self._savepoints: dict[int, tuple[EventRow, ...]] = {}
        _tell_after_commit(connection.engine)
        event.listen(connection, "commit", self._about_to_commit)
        event.listen(connection, "rollback", self._rolled_back)
        event.listen(connection, "prepare_twophase", self._about_to_prepare)
        event.listen(connection, "commit_twophase", self._about_to_commit_twophase)
        event.listen(connection, "rollback_twophase", self._rolled_back_twophase)
        event.listen(connection, "savepoint", self._savepoint_began)
        event.listen(connection, "rollback_savepoint", self._savepoint_rolled_back)
        event.listen(connection, "release_savepoint", self._savepoint_released)

    def add(self, rows: Iterable[EventRow]) -> None:
        """Buffer rows; they are written just before the commit."""
        if not self._connection.in_transaction():
            self._connection.begin()  # without one, `commit()` would have nothing to do
        refuse_autocommit(self._connection)
        self._rows.extend(rows)

    def hold(self, tenant_id: str, what: str) -> None:
        """Stay inside a tenant until the transaction ends; refuse a second one."""
        if self._tenant_id not in (None, tenant_id):
            raise TenantMismatch(what, tenant_id, str(self._tenant_id))
        self._tenant_id = tenant_id

    def write(self) -> None:
        """Write what waits."""
        if self._rows:
            if self._settings.tenancy.required:
                enter_tenant(self._connection, self._rows[0].tenant_id)
            write_events(self._connection, self._rows, schema=self._settings.schema)
            self._rows.clear()

    def _about_to_commit(self, connection: Connection) -> None:
        self._tenant_id = None
        if not self._rows:
            return
        try:
            self.write()
        except BaseException:
            self._forget()
            # SQLAlchemy lets go of a transaction whose commit fails and would not roll it back.
            if not connection.invalidated:
                connection.dialect.do_rollback(connection.connection)
            raise
        connection.info[_COMMITTING] = True

    def _rolled_back(self, connection: Connection) -> None:
        if not connection.invalidated:  # else its `info` is gone, and asking would hide the error
            connection.info.pop(_COMMITTING, None)
        self._forget()

    def write_early(self) -> None:
        """Write what waits before the commit."""
        self.write()

    def _forget(self) -> None:
        self._tenant_id = None
        self._rows.clear()
        self._savepoints.clear()

    def _about_to_prepare(self, connection: Connection, xid: Any) -> None:
        del xid
        self._about_to_commit(connection)

    def _about_to_commit_twophase(self, connection: Connection, xid: Any, prepared: bool) -> None:
        del xid
        if not prepared:
            self._about_to_commit(connection)

    def _rolled_back_twophase(self, connection: Connection, xid: Any, prepared: bool) -> None:
        del xid, prepared
        self._rolled_back(connection)

    def _savepoint_began(self, connection: Connection, name: str | None) -> None:
        del name  # SQLAlchemy names it only afterwards, by its next number
        number: int = vars(connection)["_Connection__savepoint_seq"] + 1
        self._savepoints[number] = tuple(self._rows)

    def _savepoint_rolled_back(self, connection: Connection, name: str, context: Any) -> None:
        del connection, context
        self._rows = list(self._end_savepoint(name))

    def _savepoint_released(self, connection: Connection, name: str, context: Any) -> None:
        del connection, context
        self._end_savepoint(name)

    def _end_savepoint(self, name: str) -> tuple[EventRow, ...]:
        """Return what waited when a savepoint began; before this capture was made, nothing did."""
        return self._savepoints.pop(int(name.rpartition("_")[2]), ())


def connection_capture(connection: Connection, settings: CaptureSettings) -> ConnectionCapture:
    """Return a connection's capture, made on first use."""
    found: ConnectionCapture | None = connection.get_execution_options().get(_OPTION)
    if found is None:
        found = ConnectionCapture(connection, settings)
        connection.execution_options(**{_OPTION: found})
    return found


def _tell_after_commit(engine: Engine) -> None:
    """Wake projectors when a connection that committed events begins anew or goes back.

    SQLAlchemy has no event after a connection's commit; these are the first ones that follow.
    """
    if engine.get_execution_options().get(_COMMITTING):
        return
    engine.update_execution_options(**{_COMMITTING: True})
    wakeup = wakeup_of(engine)

    def began(connection: Connection) -> None:
        if connection.info.pop(_COMMITTING, False):
            wakeup.tell()

    def returned(dbapi_connection: Any, record: ConnectionPoolEntry) -> None:
        del dbapi_connection
        if record.info.pop(_COMMITTING, False):
            wakeup.tell()

    event.listen(engine, "begin", began)
    event.listen(engine, "checkin", returned)
