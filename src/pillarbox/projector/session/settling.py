"""Settle: write outcomes, behind the fence of the leases."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, and_, delete, update

from pillarbox.projector.config import OutboxProjectorConfig
from pillarbox.projector.session.blocking import Blocking, key_of
from pillarbox.projector.session.fence import Fence
from pillarbox.projector.session.tables import Tables, is_among, unsettled, upsert
from pillarbox.projector.session.transactions import time_of
from pillarbox.projector.store import (
    UNCOUNTED,
    Failure,
    Lane,
    OutboxEvent,
    Settled,
    Settlement,
)


@dataclass(frozen=True, slots=True)
class Settling:
    """Write what became of events."""

    tables: Tables
    fence: Fence
    blocking: Blocking
    config: OutboxProjectorConfig

    def settle(
        self, connection: Connection, settlement: Settlement, epochs: Mapping[int, int]
    ) -> Settled:
        """Write the outcomes of shards whose leases are held."""
        lost = self.fence.lost(connection, epochs)
        held = settlement.without(lost)
        now = time_of(connection)
        self._write_sent(connection, held.sent, now)
        self.end(connection, held.ended, now)
        again = self._write_troubles(connection, held, now) if held.troubled else ()
        return Settled(lost, again)

    def end(self, connection: Connection, claims: Iterable[UUID], now: datetime) -> None:
        """End claims; one that has ended stays so."""
        ends = [{"claim_id": claim_id, "ended_at": now} for claim_id in claims]
        if ends:
            ending = upsert(connection, self.tables.claim_end).on_conflict_do_nothing()
            connection.execute(ending, ends)

    def _write_sent(
        self, connection: Connection, events: Sequence[OutboxEvent], now: datetime
    ) -> None:
        if not events:
            return
        outbox = self.tables.outbox
        these = and_(is_among(connection, outbox, events), unsettled(outbox))
        if self.config.on_sent == "delete":
            connection.execute(delete(outbox).where(these))
            return
        sent = {"status": "SENT", "published_at": now, "error_class": None, "error_message": None}
        connection.execute(update(outbox).where(these).values(**sent))

    def _write_troubles(
        self, connection: Connection, settlement: Settlement, now: datetime
    ) -> tuple[OutboxEvent, ...]:
        """Write what is more than sent; return the events that were to be set aside and were not."""
        self.blocking.lock(connection, settlement.of_blocked_keys())
        for event in settlement.counted:
            self._write(connection, event, retry_count=event.attempts + 1)
        for event, why in sorted(settlement.refused, key=lambda pair: key_of(pair[0])):
            if self._fail(connection, event, why, now) and self._blocks(event, why):
                self.blocking.block(connection, event, event.seq, None, now)
        for event in sorted(_first_waiting(settlement.waiting), key=key_of):
            self.blocking.block(connection, event, event.seq - 1, event.topic, now)
        aside = settlement.aside + settlement.waiting
        set_aside = self.blocking.set_aside(connection, aside)
        again = tuple(event for event in aside if event.seq not in set_aside)
        if again and self.config.claim == "row":
            self._unmark(connection, again)
        passed = [event for event, why in settlement.dead if not self._blocks(event, why)]
        freed = [event for event in (*settlement.sent, *passed) if event.blocker]
        self.blocking.release_behind(connection, freed)
        return again

    def _unmark(self, connection: Connection, events: Sequence[OutboxEvent]) -> None:
        """Make NEW again what was marked and is to be read again."""
        outbox = self.tables.outbox
        marked = and_(is_among(connection, outbox, events), outbox.c.status == "PUBLISHING")
        connection.execute(update(outbox).where(marked).values(status="NEW"))

    def _blocks(self, event: OutboxEvent, why: Failure) -> bool:
        return why.blocks(event, skip_dead=self._skip_dead)

    @property
    def _skip_dead(self) -> bool:
        return self.config.on_dead == "skip"

    def _fail(
        self, connection: Connection, event: OutboxEvent, why: Failure, now: datetime
    ) -> bool:
        """Write FAILED or DEAD; tell whether the event stood as expected."""
        decided = why.decided(skip_dead=self._skip_dead)
        return self._write(
            connection,
            event,
            status="DEAD" if why.delay is None else "FAILED",
            retry_count=event.attempts + (why.code not in UNCOUNTED),
            retry_after=None if why.delay is None else now + timedelta(seconds=why.delay),
            error_class=decided.code,
            error_message=decided.reason,
        )

    def _write(self, connection: Connection, event: OutboxEvent, **values: object) -> bool:
        """Change an event whose status and attempts are as expected; tell whether they were."""
        written = connection.execute(
            update(self.tables.outbox).where(self._expected(event)).values(**values)
        )
        return written.rowcount == 1

    def _expected(self, event: OutboxEvent) -> ColumnElement[bool]:
        outbox = self.tables.outbox.c
        return and_(
            outbox.tenant_id == event.lane[0],
            outbox.id == UUID(event.event_id),
            unsettled(self.tables.outbox),
            outbox.retry_count == event.attempts,
        )


def _first_waiting(events: Iterable[OutboxEvent]) -> Iterable[OutboxEvent]:
    """Choose the first event of each key that waits for a topic."""
    first: dict[Lane, OutboxEvent] = {}
    for event in sorted(events, key=lambda event: event.seq):
        first.setdefault(key_of(event), event)
    return first.values()
