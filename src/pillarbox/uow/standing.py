"""Whether a transaction stands: on PostgreSQL a statement that fails aborts it."""

from typing import Final

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError, PendingRollbackError

ANYTHING: Final = text("SELECT 1")
_IN_TRANSACTION: Final = 2  # libpq's PQTRANS_INTRANS


def is_known_to_stand(connection: Connection) -> bool:
    """Say so without asking; libpq keeps what the server's last answer said of the transaction."""
    if connection.invalidated:
        return False
    if connection.dialect.name != "postgresql":
        return True
    pgconn = getattr(connection.connection.driver_connection, "pgconn", None)
    return pgconn is not None and pgconn.transaction_status == _IN_TRANSACTION


def stands(connection: Connection) -> bool:
    """Say whether a transaction can go on; asked in a greenlet, since it may ask the database.

    Raises if it finds the connection lost: then nothing can, and what was done before is gone.
    """
    if is_known_to_stand(connection):
        return True
    try:
        connection.execute(ANYTHING)
    except DBAPIError as error:
        if error.connection_invalidated:
            raise
        return False
    except PendingRollbackError:
        return False
    return True
