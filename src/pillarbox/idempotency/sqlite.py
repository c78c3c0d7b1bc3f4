"""Claims on SQLite, where one writer at a time holds the database.

A second process waits for the write lock like any writer, and then finds the answer. Within one
process nobody waits: keys that are being worked on are known here.
"""

from dataclasses import asdict
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, func, literal_column, select
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import DBAPIError

from pillarbox.idempotency.decision import Busy, Claimed, OverQuota, Sighting
from pillarbox.idempotency.scope import Scope
from pillarbox.idempotency.store import Bid, CommandStore, sighting_of


class SqliteCommands(CommandStore):
    """Commands in SQLite."""

    place = literal_column("rowid")

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._working: dict[Scope, Bid] = {}

    def claim(self, connection: Connection, bid: Bid) -> Sighting:
        """Insert the key's row, or say why not."""
        if self._working.setdefault(bid.scope, bid) is not bid:
            return Busy()
        return self._claim(connection, bid)

    def is_held_off(self, error: DBAPIError) -> bool:
        """Say whether another process holds the database for longer than the time-out."""
        return getattr(error.orig, "sqlite_errorname", "").startswith("SQLITE_BUSY")

    def is_busy(self, bid: Bid) -> bool:
        """Say whether another request of this process holds the key, and so the database."""
        return self._working.get(bid.scope, bid) is not bid

    def now(self) -> datetime:
        """Tell the time by the machine's clock, which is the database's."""
        return self.clock.now()

    def ended(self, bid: Bid) -> None:
        """Let others claim the key."""
        if self._working.get(bid.scope) is bid:
            del self._working[bid.scope]

    def _claim(self, connection: Connection, bid: Bid) -> Sighting:
        now = self.now()
        row = self.find(connection, bid.scope)
        if row is not None and row.is_live:
            return sighting_of(row)
        if self._live_keys(connection, bid.scope, now) >= self.settings.quota:
            return OverQuota()
        self._write(connection, bid, now)
        return Claimed()

    def _write(self, connection: Connection, bid: Bid, now: datetime) -> None:
        state = {
            "fingerprint": bid.fingerprint,
            "state": "running",
            "token": None if bid.lease is None else bid.lease.token,
            "lease_until": None if bid.lease is None else now + bid.lease.length,
            "created_at": now,
            "expires_at": now + self.settings.ttl,
            "status_code": None,
            "headers": None,
            "body": None,
        }
        new = insert(self.table).values(**asdict(bid.scope), **state)
        connection.execute(
            new.on_conflict_do_update(index_elements=list(asdict(bid.scope)), set_=state)
        )

    def _live_keys(self, connection: Connection, scope: Scope, now: datetime) -> int:
        rows = self.table.c
        live = (
            select(rows.key_hash)
            .where(
                rows.tenant_id == scope.tenant_id,
                rows.principal == scope.principal,
                rows.expires_at > now,
            )
            .limit(self.settings.quota)
        )
        counted = select(func.count()).select_from(live.subquery())
        return connection.execute(counted).scalar_one()
