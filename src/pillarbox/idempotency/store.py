"""Where the commands stand: one row for each scope, claimed first and completed by the answer.

In the strong mode claim and record belong to the business transaction, so that the row is never
seen unfinished: it commits with the effect and the answer, or not at all. In the weaker mode each
is a transaction of its own, and the row carries a lease and a token meanwhile.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, ClassVar, Final
from uuid import UUID

import orjson
from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    LargeBinary,
    Row,
    Table,
    Text,
    Update,
    and_,
    bindparam,
    cast,
    delete,
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError

from pillarbox.clock import SYSTEM_CLOCK, Clock
from pillarbox.idempotency.answer import Answer
from pillarbox.idempotency.decision import Done, Running, Sighting
from pillarbox.idempotency.scope import Scope
from pillarbox.idempotency.settings import IdempotencySettings
from pillarbox.idempotency.statement import CompiledOnce
from pillarbox.idempotency.tenants import Tenants
from pillarbox.outbox.postponed import PostponedEvent
from pillarbox.schema.tables import idempotency, table_in


@dataclass(frozen=True, slots=True)
class Lease:
    """Who executes a command of the weaker mode, and for how long without a sign of life."""

    token: UUID
    length: timedelta


@dataclass(frozen=True, slots=True)
class Bid:
    """What is asked for: a key's row for this request."""

    scope: Scope
    fingerprint: str
    lease: Lease | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """What the record knows of the transaction that it is the last statement of."""

    place: str | None = None
    """Where the claim of this very transaction has put the row."""
    event: PostponedEvent | None = None
    """An event that is to be written with the record."""
    may_commit: bool = False
    """Whether the database may commit with it; the connection's own commit must follow."""


_APART: Final = Ending()


class CommandStore(ABC):
    """Claim and complete the rows of commands, each call in the connection's transaction.

    A claim never waits for another transaction that holds the key: it says what it met. The calls
    are sync; with an async session they run in `run_sync`.
    """

    place: ClassVar[ColumnElement[Any]]
    """Where a row stands, by which the database finds it without an index."""

    def __init__(
        self,
        settings: IdempotencySettings,
        *,
        schema: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.settings, self.clock = settings, clock
        self.tenants = Tenants(schema)
        self.table: Table = table_in(idempotency, schema)
        self._record = CompiledOnce(self._make_record())
        held = self.table.c.token == bindparam("its_token")
        self._record_held = self._make_record().where(held)

    @abstractmethod
    def claim(self, connection: Connection, bid: Bid) -> Sighting:
        """Insert the key's row, or say why not."""

    def is_busy(self, bid: Bid) -> bool:
        """Say whether this process knows, without the database, that the key is worked on."""
        del bid
        return False

    def is_held_off(self, error: DBAPIError) -> bool:
        """Say whether a claim failed, or could not begin, only because others are at work."""
        del error
        return False

    @abstractmethod
    def ended(self, bid: Bid) -> None:
        """Be told that the transaction of a claim has ended, or that there was none."""

    @abstractmethod
    def now(self) -> Any:
        """Tell the time, by the clock by which rows expire."""

    def record(
        self,
        connection: Connection,
        bid: Bid,
        answer: Answer,
        ending: Ending = _APART,
    ) -> bool:
        """Complete a claimed row; False means that somebody else has taken it over."""
        values = {
            "its_tenant_id": bid.scope.tenant_id,
            "its_principal": bid.scope.principal,
            "its_operation": bid.scope.operation,
            "its_key_hash": bid.scope.key_hash,
            "its_status": answer.status,
            "its_headers": orjson.dumps(answer.headers).decode(),
            "its_body": answer.body,
        }
        if bid.lease is None:
            return self._complete(connection, values, ending)
        values["its_token"] = bid.lease.token
        return connection.execute(self._record_held, values).rowcount == 1

    def _complete(self, connection: Connection, values: dict[str, Any], ending: Ending) -> bool:
        if ending.event is not None:
            ending.event.write(connection)
        return self._record.run(connection, values).changed == 1

    def _make_record(self, by: Sequence[str] = Scope.__slots__) -> Update:
        columns = self.table.c
        headers = bindparam("its_headers", type_=Text)
        return (
            update(self.table)
            .where(
                *(columns[name] == bindparam(f"its_{name}") for name in by),
                columns.state == literal_column("'running'"),
            )
            .values(
                state=literal_column("'done'"),
                status_code=bindparam("its_status", type_=Integer),
                headers=cast(headers, columns.headers.type),
                body=bindparam("its_body", type_=LargeBinary),
                lease_until=literal_column("NULL"),
                token=literal_column("NULL"),
            )
        )

    def renew(self, connection: Connection, bid: Bid) -> bool:
        """Prolong a lease; False means that it is lost."""
        assert bid.lease is not None  # noqa: S101 - only the weaker mode renews
        statement = (
            update(self.table)
            .where(*self._of(bid.scope), self._held(bid))
            .values(lease_until=self.now() + bid.lease.length)
        )
        return connection.execute(statement).rowcount == 1

    def release(self, connection: Connection, bid: Bid) -> bool:
        """Remove a claimed row, so that a repetition executes."""
        statement = delete(self.table).where(
            *self._of(bid.scope), self.table.c.state == "running", self._held(bid)
        )
        return connection.execute(statement).rowcount == 1

    def forget_expired(self, connection: Connection, limit: int = 1_000) -> int:
        """Delete rows whose time is over, so many at most; repeat until it deletes fewer."""
        expired = (
            select(self.place)
            .select_from(self.table)
            .where(self.table.c.expires_at <= self.now())
            .order_by(self.table.c.expires_at)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        return connection.execute(delete(self.table).where(self.place.in_(expired))).rowcount

    def find(self, connection: Connection, scope: Scope) -> Row[Any] | None:
        """Read the row of a key; `is_live` says whether it still counts."""
        wanted = select(self.table, (~self.is_free()).label("is_live")).where(*self._of(scope))
        return connection.execute(wanted).one_or_none()

    def is_free(self) -> ColumnElement[bool]:
        """Say of a row that its time or its lease is over."""
        rows, now = self.table.c, self.now()
        is_running = rows.state == literal_column("'running'")
        silent = and_(is_running, rows.lease_until.is_not(None), rows.lease_until <= now)
        return or_(rows.expires_at <= now, silent)

    def _of(self, scope: Scope) -> list[ColumnElement[bool]]:
        return [self.table.c[name] == value for name, value in asdict(scope).items()]

    def _held(self, bid: Bid) -> Any:
        token = self.table.c.token
        return token.is_(None) if bid.lease is None else token == bid.lease.token


def sighting_of(row: Row[Any]) -> Done | Running:
    """Say what a committed row means."""
    if row.state == "running":
        return Running(row.fingerprint)
    headers = tuple((name, value) for name, value in row.headers or ())
    return Done(row.fingerprint, Answer(row.status_code, headers, row.body))
