"""Claims on PostgreSQL: one statement, and no waiting.

An advisory lock of the transaction is tried first. Who does not get it knows that the key's row is
being written, and does not run into the INSERT, which would wait for the other transaction.
"""

from typing import Any, Final

from sqlalchemy import (
    CTE,
    BigInteger,
    ColumnElement,
    Connection,
    Integer,
    Interval,
    Select,
    Text,
    Update,
    bindparam,
    cast,
    func,
    literal_column,
    select,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import UserDefinedType

from pillarbox.idempotency.decision import Busy, Claimed, OverQuota, Sighting
from pillarbox.idempotency.quota import Allowances
from pillarbox.idempotency.statement import CompiledOnce
from pillarbox.idempotency.store import Bid, CommandStore, Ending, sighting_of
from pillarbox.outbox.postponed import written

_NOW: Final = func.now()
_KEY: Final = ("tenant_id", "principal", "operation", "key_hash")
_DIVISION_BY_ZERO: Final = "22012"
_LOCKED: Final = func.pg_try_advisory_xact_lock(bindparam("lock", type_=BigInteger))


class _Tid(UserDefinedType[str]):
    """Where a version of a row stands."""

    cache_ok = True

    def get_col_spec(self, **kw: Any) -> str:
        """Name the type."""
        del kw
        return "TID"


_CTID: Final = literal_column("ctid", _Tid())


def _nothing_or_failure(recorded: CTE, count: ColumnElement[int]) -> Select[Any]:
    """Return no row if the count is one; none need be read. A division by zero says that it is not."""
    is_zero: ColumnElement[bool] = literal_column("1", Integer) // count == literal_column("0")
    return select(literal_column("1")).select_from(recorded).having(is_zero)


class PostgresCommands(CommandStore):
    """Commands in PostgreSQL."""

    place = _CTID

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._allowances = Allowances(self.settings.quota)
        self._insert = CompiledOnce(self._make_insert(select(*self._new()).where(_LOCKED)))
        self._insert_counting = CompiledOnce(self._make_insert_counting())
        self._record_at = CompiledOnce(self._make_record_at())
        self._record_or_fail = CompiledOnce(self._make_record_or_fail())
        self._records_with_event: dict[str | None, CompiledOnce] = {}

    def claim(self, connection: Connection, bid: Bid) -> Sighting:
        """Insert the key's row, or say why not; at most two statements, neither of which waits."""
        keys = 0
        if self._allowances.must_count(bid.scope):
            place, keys = self._insert_counting.run(connection, self._values(bid)).row or (None, 0)
            self._allowances.counted(bid.scope, keys)
        else:
            (place,) = self._insert.run(connection, self._values(bid)).row or (None,)
        if place is not None:
            self._allowances.spend(bid.scope)
            return Claimed(place)
        row = self.find(connection, bid.scope)
        if row is not None and row.is_live:
            return sighting_of(row)
        return OverQuota() if keys >= self.settings.quota else Busy()

    def now(self) -> Any:
        """Tell the time by the database's clock."""
        return _NOW

    def ended(self, bid: Bid) -> None:
        """Do nothing: the lock ends with its transaction."""

    def _complete(self, connection: Connection, values: dict[str, Any], ending: Ending) -> bool:
        """Go straight to the row.

        By its key, as long as the table has no statistics, the planner takes the index of callers
        and reads all keys of this one. Nobody else can move a row that is not committed.
        """
        if ending.place is None:
            return super()._complete(connection, values, ending)
        values["its_place"] = ending.place
        if ending.event is not None:
            values |= ending.event.values()
            statement = self._record_with_event(ending.event.schema)
        elif ending.may_commit:
            statement = self._record_or_fail
        else:
            return self._record_at.run(connection, values).changed == 1
        try:
            statement.run(connection, values, may_commit=ending.may_commit)
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) != _DIVISION_BY_ZERO:
                raise
            return False
        return True

    def _make_record_at(self) -> Update:
        place = cast(bindparam("its_place", type_=Text), _Tid())
        return self._make_record(by=("key_hash",)).where(place == _CTID)

    def _make_record_or_fail(self) -> Select[Any]:
        """Make a record that fails without a row, so that a COMMIT sent with it is not done."""
        recorded = self._make_record_at().returning(literal_column("1")).cte("recorded")
        return _nothing_or_failure(recorded, func.count())

    def _record_with_event(self, schema: str | None) -> CompiledOnce:
        """Return a record that also writes an event, and fails without either of them."""
        found = self._records_with_event.get(schema)
        if found is None:
            event = written(schema)
            recorded = self._make_record_at().returning(literal_column("1")).cte("recorded")
            events = select(func.count()).select_from(event).scalar_subquery()
            made = CompiledOnce(_nothing_or_failure(recorded, func.count() * events))
            found = self._records_with_event.setdefault(schema, made)
        return found

    def _values(self, bid: Bid) -> dict[str, Any]:
        scope = bid.scope
        return {
            "tenant_id": scope.tenant_id,
            "principal": scope.principal,
            "operation": scope.operation,
            "key_hash": scope.key_hash,
            "lock": scope.lock,
            "fingerprint": bid.fingerprint,
            "token": None if bid.lease is None else bid.lease.token,
            "lease": None if bid.lease is None else bid.lease.length,
            "ttl": self.settings.ttl,
            "quota": self.settings.quota,
        }

    def _make_insert_counting(self) -> Select[Any]:
        """Make the claim that also counts the caller's keys, and inserts none above the quota."""
        held = select(_LOCKED.label("ours"), self._keys().label("counted")).cte("held")
        room = held.c.counted < bindparam("quota", type_=BigInteger)
        claimed = self._make_insert(select(*self._new()).where(held.c.ours, room)).cte("claimed")
        return select(select(claimed.c.place).scalar_subquery(), held.c.counted)

    def _new(self) -> list[ColumnElement[Any]]:
        """Return the values of a new row, as `_make_insert` names them."""
        columns = self.table.c
        bound = (bindparam(name, type_=columns[name].type) for name in (*_KEY, "fingerprint"))
        return [
            *bound,
            literal_column("'running'"),
            bindparam("token", type_=columns.token.type),
            _NOW + bindparam("lease", type_=Interval),
            _NOW,
            _NOW + bindparam("ttl", type_=Interval),
        ]

    def _make_insert(self, wanted: Select[Any]) -> Any:
        changed = ("fingerprint", "state", "token", "lease_until", "created_at", "expires_at")
        new = insert(self.table).from_select([*_KEY, *changed], wanted)
        nothing: ColumnElement[Any] = literal_column("NULL")
        cleared = dict.fromkeys(("status_code", "headers", "body"), nothing)
        return new.on_conflict_do_update(
            index_elements=_KEY,
            set_={name: new.excluded[name] for name in changed} | cleared,
            where=self.is_free(),
        ).returning(cast(_CTID, Text).label("place"))

    def _keys(self) -> ColumnElement[int]:
        """Count the caller's live keys, up to the quota."""
        rows = self.table.c
        live: Select[Any] = (
            select(literal_column("1"))
            .where(
                rows.tenant_id == bindparam("tenant_id", type_=rows.tenant_id.type),
                rows.principal == bindparam("principal", type_=rows.principal.type),
                rows.expires_at > _NOW,
            )
            .limit(bindparam("quota", type_=BigInteger))
        )
        return select(func.count()).select_from(live.subquery()).scalar_subquery()
