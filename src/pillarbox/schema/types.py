"""Column types that mean the same on every database."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import JSON, BigInteger, DateTime, Dialect, Float, String, Uuid, literal
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator, TypeEngine, UserDefinedType


class EventIdType(TypeDecorator[UUID]):
    """Store a UUID natively in PostgreSQL and as its usual text elsewhere."""

    impl = Uuid
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Choose the column type of the database."""
        return dialect.type_descriptor(Uuid() if dialect.name == "postgresql" else String(36))

    def process_bind_param(self, value: UUID | str | None, dialect: Dialect) -> Any:
        """Hand the id over in the form that the database stores."""
        if value is None or dialect.name == "postgresql":
            return UUID(value) if isinstance(value, str) else value
        return str(value)

    def process_result_value(self, value: UUID | str | None, dialect: Dialect) -> UUID | None:
        """Return the id as a UUID."""
        del dialect
        return UUID(value) if isinstance(value, str) else value


class UtcTime(TypeDecorator[datetime]):
    """Store an aware time; SQLite, which has no time zones, keeps it as UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Refuse a naive time; bring an aware one to UTC."""
        del dialect
        if value is not None and value.tzinfo is None:
            raise ValueError("a naive datetime cannot be stored; use datetime.now(UTC)")
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return the time in UTC: in two zones one time need not equal itself while clocks go back."""
        del dialect
        if value is None or value.tzinfo is UTC:
            return value
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class DatabaseTime(FunctionElement[Any]):
    """The time of the database, or a moment after it; it alone judges leases and timers."""

    inherit_cache = True
    type = UtcTime()

    def __init__(self, after: timedelta | None = None) -> None:
        super().__init__(*(() if after is None else (literal(after.total_seconds(), Float()),)))


@compiles(DatabaseTime)
def _statement_time(element: DatabaseTime, compiler: SQLCompiler, **kw: Any) -> str:
    if not len(element.clauses):
        return "statement_timestamp()"
    return (
        f"statement_timestamp() + make_interval(secs => {compiler.process(element.clauses, **kw)})"
    )


@compiles(DatabaseTime, "sqlite")
def _sqlite_time(element: DatabaseTime, compiler: SQLCompiler, **kw: Any) -> str:
    if not len(element.clauses):
        return "strftime('%Y-%m-%d %H:%M:%f', 'now')"
    seconds = compiler.process(element.clauses, **kw)
    return f"strftime('%Y-%m-%d %H:%M:%f', 'now', {seconds} || ' seconds')"


class TransactionIdType(UserDefinedType[int]):
    """PostgreSQL's 64-bit transaction id (`xid8`); a plain integer elsewhere."""

    cache_ok = True

    def get_col_spec(self, **kw: Any) -> str:
        """Name the type in DDL."""
        del kw
        return "XID8"


class StoredJson(JSON):
    """JSON as it was written: PostgreSQL's `json`, and text elsewhere.

    SQLite would take a column named JSON for a number and rewrite `0.0` as `0`.
    """

    cache_ok = True


@compiles(StoredJson, "sqlite")
def _text(element: StoredJson, compiler: SQLCompiler, **kw: Any) -> str:
    del element, compiler, kw
    return "TEXT"


class TransactionId(FunctionElement[int]):
    """The id of the running transaction, where the database has one."""

    inherit_cache = True
    type = BigInteger()


class NextNumber(FunctionElement[int]):
    """The next number of a sequence, where the database has sequences."""

    inherit_cache = True
    type = BigInteger()

    def __init__(self, sequence: str) -> None:
        super().__init__()
        self.sequence = sequence


@compiles(TransactionId)
@compiles(NextNumber)
def _nothing(element: FunctionElement[int], compiler: SQLCompiler, **kw: Any) -> str:
    del element, compiler, kw
    return "NULL"


@compiles(TransactionId, "postgresql")
def _transaction_id(element: TransactionId, compiler: SQLCompiler, **kw: Any) -> str:
    del element, compiler, kw
    return "pg_current_xact_id()"


@compiles(NextNumber, "postgresql")
def _next_number(element: NextNumber, compiler: SQLCompiler, **kw: Any) -> str:
    del compiler, kw
    return f"nextval('{element.sequence}'::regclass)"
