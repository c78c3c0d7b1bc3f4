"""What is known of messages that were not finished: how often they failed, and who died over them.

Written in short transactions of their own. A first delivery leaves nothing here unless it fails.
A redelivered message is marked before its handler begins, and the mark goes with its transaction:
found with a mark of another process, it was in hand when that process died.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Insert, delete, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox.consumer.lane import InHand
from pillarbox.consumer.verdict import AskedToPark, AskedToWait, Failed, Trial
from pillarbox.schema.tables import inbox_attempt, table_in
from pillarbox.words import storable, storable_class


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a try did not finish, as the tables keep it."""

    error_class: str
    message: str

    @classmethod
    def of(cls, end: Trial) -> "Trouble":
        """Return what a try's end says."""
        match end:
            case Failed():
                return cls(storable_class(end.error_class), storable(end.message))
            case AskedToWait():
                return cls("Retry", storable(end.message))
            case AskedToPark():
                return cls("Park", storable(end.message))


@dataclass(frozen=True, slots=True)
class Marks:
    """What the marks say: who must be alone, and who was alone when a process died again."""

    suspected: Collection[InHand] = ()
    killers: Collection[InHand] = ()


class Attempts:
    """Read and write the attempts of one consumer, inside the transactions of others."""

    def __init__(self, consumer: str, max_crashes: int, schema: str | None = None) -> None:
        self._consumer, self._max_crashes = consumer, max_crashes
        self._table = table_in(inbox_attempt, schema)

    async def begin(self, session: AsyncSession, items: Sequence[InHand], now: datetime) -> Marks:
        """Mark messages as begun with, and take over what is known of them; all of one tenant.

        Those who must be alone, or are to blame, are not marked. What this process has marked
        before is passed over.
        """
        new = [item for item in items if not item.marked]
        if not new:
            return Marks()
        known = await self._read(session, new)
        suspected, killers, begun = [], [], []
        for item in new:
            row = known.get(item.message_id)
            item.noted = True
            item.attempts = max(item.attempts, row.failed if row else 0)
            if row is None or not row.started:
                begun.append(item)
            elif row.alone and row.started >= self._max_crashes:
                killers.append(item)
            elif item.alone:
                begun.append(item)
            else:
                suspected.append(item)
        await self._mark(session, begun, now)
        return Marks(suspected, killers)

    async def begun(self, session: AsyncSession, items: Sequence[InHand]) -> set[InHand]:
        """Return those that a process has begun with and not finished."""
        known = await self._read(session, items)
        return {i for i in items if i.message_id in known and known[i.message_id].started}

    async def failed(
        self, session: AsyncSession, tries: Sequence[tuple[InHand, Trouble]], now: datetime
    ) -> None:
        """Count tries that failed, and take their marks away."""
        for item, trouble in tries:
            values = {
                "failed": item.attempts,
                "started": 0,
                "alone": 0,
                "error_class": trouble.error_class,
                "error_message": trouble.message,
            }
            await session.execute(self._upsert(session, [item], values, values, now))
            item.noted = True

    async def forget(self, session: AsyncSession, items: Collection[InHand]) -> None:
        """Delete what is known of messages that are finished; those nobody knows are passed over."""
        known = [item for item in items if item.noted]
        if known:
            await session.execute(delete(self._table).where(*self._these(known)))

    async def unmark(self, session: AsyncSession, items: Collection[InHand]) -> None:
        """Take marks away from messages that this process gives back unfinished.

        A row that would say nothing else goes: another process may have finished the message, and
        would not look for it any more.
        """
        if not items:
            return
        never_failed = self._table.c.failed == 0
        await session.execute(delete(self._table).where(*self._these(items), never_failed))
        await session.execute(
            update(self._table).where(*self._these(items)).values(started=0, alone=0)
        )

    async def _mark(self, session: AsyncSession, items: Sequence[InHand], now: datetime) -> None:
        columns = self._table.c
        for alone in (False, True):
            begun = [item for item in items if item.alone is alone]
            if begun:
                first = {"started": 1, "alone": int(alone)}
                again = {"started": columns.started + 1, "alone": int(alone)}
                await session.execute(self._upsert(session, begun, first, again, now))

    async def _read(self, session: AsyncSession, items: Sequence[InHand]) -> dict[str, Any]:
        rows = await session.execute(select(self._table).where(*self._these(items)))
        return {row.message_id: row for row in rows}

    def _these(self, items: Collection[InHand]) -> Sequence[ColumnElement[bool]]:
        columns = self._table.c
        tenant_id = next(iter(items)).tenant_id
        return (
            columns.tenant_id == tenant_id,
            columns.consumer == self._consumer,
            columns.message_id.in_([item.message_id for item in items]),
        )

    def _upsert(
        self,
        session: AsyncSession,
        items: Sequence[InHand],
        first: Mapping[str, Any],
        again: Mapping[str, Any],
        now: datetime,
    ) -> Insert:
        dialect = session.sync_session.get_bind().dialect.name
        insert = postgresql.insert if dialect == "postgresql" else sqlite.insert
        # Sorted, so that two processes with the same messages wait for one another in one order.
        ids = sorted({item.message_id for item in items})
        place = {"tenant_id": items[0].tenant_id, "consumer": self._consumer, "first_at": now}
        rows = [{**place, **first, "message_id": found, "last_at": now} for found in ids]
        columns = self._table.c
        return (
            insert(self._table)
            .values(rows)
            .on_conflict_do_update(
                index_elements=[columns.tenant_id, columns.consumer, columns.message_id],
                set_={**again, "last_at": now},
            )
        )
