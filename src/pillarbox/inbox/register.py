"""The work of an inbox on a sync session or connection; both inboxes do it through this."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime, timedelta
from typing import Any, Final

import orjson
from sqlalchemy import Connection
from sqlalchemy.orm import Session

from pillarbox.errors import ContentMismatch, DuplicateMessage, TenantMismatch
from pillarbox.event.rules import check_key
from pillarbox.inbox import statements
from pillarbox.inbox.identity import stored_id
from pillarbox.inbox.message import InboxMessage, InboxRow, hash_of, row_of, sorted_once
from pillarbox.inbox.record import InboxRecord
from pillarbox.outbox.capture import HELD_TENANT, SETTINGS
from pillarbox.outbox.new_event import Key
from pillarbox.outbox.settings import CaptureSettings
from pillarbox.outbox.targets import Target, connection_of, hold_tenant, named_tenant
from pillarbox.outbox.write import refuse_autocommit
from pillarbox.settings import check_between
from pillarbox.tenancy import DEFAULT_TENANT, enter_tenant

CLEANUP_BATCH: Final = 1_000
MIN_DAYS: Final = 0.01
MAX_DAYS: Final = 36_500
COMPARED_AT_ONCE: Final = 5_000  # drivers take some 32,000 parameters
_TENANT: Final = "pillarbox.inbox_tenant"
log = logging.getLogger("pillarbox.inbox")


class Register:
    """Record and look up the messages of one consumer, in the running transaction."""

    def __init__(
        self,
        target: Target,
        tenant_id: str,
        consumer: str,
        settings: CaptureSettings | None,
        *,
        keep_payload: bool,
    ) -> None:
        known = target.info.get(SETTINGS) if isinstance(target, Session) else None
        self._settings = CaptureSettings.chosen(settings or known, None)
        self._consumer = check_key("consumer", consumer)
        self._target, self._tenant_id, self._keep_payload = target, tenant_id, keep_payload

    def is_processed(self, message_id: Key, payload: Any) -> bool:
        """Say whether a message is there; refuse another content than it had."""
        stored, given = stored_id(message_id), hash_of(payload, self._settings)
        connection, place = self._enter("inbox.is_processed(…)")
        found = self._hashes(connection, place, [stored])
        if stored in found:
            _refuse_other(place, stored, found[stored], given)
            _tell_duplicate(place, stored)
        return stored in found

    def mark(self, message: InboxMessage) -> InboxRecord:
        """Record a message that was handled; refuse one that is there already."""
        row = self._row(message)
        connection, place = self._enter("inbox.mark_processed(…)", writes=True)
        processed_at = self._insert(connection, place, row)
        if processed_at is None:
            self._compare(connection, place, [row])
            raise DuplicateMessage(**place, message_id=row.message_id)
        return _record(place, row, processed_at)

    def claim(self, message: InboxMessage) -> bool:
        """Record a message before it is handled; say whether it is new."""
        row = self._row(message)
        connection, place = self._enter("inbox.claim(…)", writes=True)
        if self._insert(connection, place, row) is not None:
            return True
        self._compare(connection, place, [row])
        _tell_duplicate(place, row.message_id)
        return False

    def claim_many(self, messages: Iterable[InboxMessage]) -> set[Key]:
        """Record messages before they are handled, with one statement; return the new ids."""
        given = [(message.message_id, self._row(message)) for message in messages]
        if not given:
            return set()
        connection, place = self._enter("inbox.claim_many(…)", writes=True)
        rows = sorted_once(row for _, row in given)
        written = orjson.dumps([row._asdict() for row in rows]).decode()
        insert = statements.insert_many(statements.dialect_of(connection), self._settings.schema)
        new = set(connection.scalars(insert, {**place, "messages": written}))
        if len(new) < len(given):
            self._compare(connection, place, [row for _, row in given])
        for row in rows if len(new) < len(rows) else ():
            if row.message_id not in new:
                _tell_duplicate(place, row.message_id)
        return {message_id for message_id, row in given if row.message_id in new}

    def find(self, message_id: Key) -> InboxRecord | None:
        """Return what is recorded of a message."""
        key = {"message_id": stored_id(message_id)}
        connection, place = self._enter("inbox.get_record(…)")
        found = connection.execute(statements.whole_row(self._settings.schema), place | key)
        row = found.mappings().first()
        return None if row is None else InboxRecord(**row)

    def clean_up(self, older_than_days: float) -> int:
        """Delete old messages of this consumer, batch by batch, and return how many there were."""
        check_between("older_than_days", older_than_days, MIN_DAYS, MAX_DAYS)
        age = timedelta(days=older_than_days)
        # Each batch its own transaction, unless the caller has one, which is not ours to end.
        apart = not self._target.in_transaction()
        total = 0
        while True:
            with self._target.begin() if apart else nullcontext():
                deleted = self._delete_batch(age)
            total += deleted
            if deleted < CLEANUP_BATCH:
                return total

    def _delete_batch(self, age: timedelta) -> int:
        connection, place = self._enter("inbox.cleanup_old_records(…)")
        dialect = statements.dialect_of(connection)
        cutoff = statements.cutoff_value(dialect, age, self._settings.clock.now())
        return connection.execute(
            statements.delete_old(dialect, self._settings.schema),
            {**place, "cutoff": cutoff, "batch": CLEANUP_BATCH},
        ).rowcount

    def _row(self, message: InboxMessage) -> InboxRow:
        return row_of(message, self._settings, keep_payload=self._keep_payload)

    def _insert(
        self, connection: Connection, place: Mapping[str, str], row: InboxRow
    ) -> datetime | None:
        insert = statements.insert_one(statements.dialect_of(connection), self._settings.schema)
        processed_at: datetime | None = connection.scalar(insert, {**place, **row._asdict()})
        return processed_at

    def _hashes(
        self, connection: Connection, place: Mapping[str, str], message_ids: Sequence[str]
    ) -> dict[str, str | None]:
        found: dict[str, str | None] = {}
        for start in range(0, len(message_ids), COMPARED_AT_ONCE):
            asked = {"message_ids": list(message_ids[start : start + COMPARED_AT_ONCE])}
            query = statements.hashes(self._settings.schema)
            found |= {row[0]: row[1] for row in connection.execute(query, {**place, **asked})}
        return found

    def _compare(
        self, connection: Connection, place: Mapping[str, str], rows: Sequence[InboxRow]
    ) -> None:
        """Refuse messages whose ids stand in the table with other content."""
        stored = self._hashes(connection, place, sorted({row.message_id for row in rows}))
        for row in rows:
            _refuse_other(place, row.message_id, stored.get(row.message_id), row.payload_hash)

    def _enter(self, what: str, *, writes: bool = False) -> tuple[Connection, dict[str, str]]:
        """Return the transaction's connection, inside the tenant, and the place of the messages."""
        named = named_tenant(self._target, self._tenant_id)
        tenant_id = self._settings.tenancy.resolve(named, what)
        explicit = self._tenant_id != DEFAULT_TENANT
        hold_tenant(self._target, tenant_id, self._settings, named=explicit, what=what)
        connection = connection_of(self._target)
        if writes:
            refuse_autocommit(connection)
        if self._settings.tenancy.required:
            self._stay_inside(connection, tenant_id, what)
        return connection, {"tenant_id": tenant_id, "consumer": self._consumer}

    def _stay_inside(self, connection: Connection, tenant_id: str, what: str) -> None:
        """Have the database know the tenant; a session that stays inside one has seen to it."""
        if isinstance(self._target, Session):
            info, running = self._target.info, self._target.get_transaction()
            held = info.get(HELD_TENANT)
            if held is None and info.get(_TENANT, (None, None))[0] is running:
                held = info[_TENANT][1]
            if held is not None and held != tenant_id:
                raise TenantMismatch(what, tenant_id, held)
            if HELD_TENANT in info:
                return
            info[_TENANT] = (running, tenant_id)
        # Each time: a savepoint that was rolled back has taken the setting with it.
        enter_tenant(connection, tenant_id)


def _tell_duplicate(place: Mapping[str, str], message_id: str) -> None:
    log.debug("duplicate_message", extra={**place, "message_id": message_id})


def _refuse_other(
    place: Mapping[str, str], message_id: str, stored: str | None, given: str | None
) -> None:
    """Raise the alarm for another content; where one side gave none, there is nothing to compare."""
    if stored is None or given is None or stored == given:
        return
    hashes = {"stored_hash": stored, "given_hash": given}
    log.warning("content_mismatch", extra={**place, "message_id": message_id, **hashes})
    raise ContentMismatch(**place, message_id=message_id, **hashes)


def _record(place: Mapping[str, str], row: InboxRow, processed_at: datetime) -> InboxRecord:
    values = row._asdict()
    for name in ("payload", "extra_data"):
        values[name] = None if values[name] is None else orjson.loads(values[name])
    return InboxRecord(**place, **values, processed_at=processed_at)
