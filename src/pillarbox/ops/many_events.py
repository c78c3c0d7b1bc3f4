"""Act on all events that match, a batch of one tenant in each transaction."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Row, Select, func, literal, select, tuple_

from pillarbox.ops.act import PAUSE, Act, Desk, Done
from pillarbox.ops.audit import ALL
from pillarbox.ops.claims import claim_on, open_claims
from pillarbox.ops.decisions import lock_troubled
from pillarbox.ops.filters import EventFilter
from pillarbox.outbox.release import Released
from pillarbox.schema.tables import outbox

PAGE: Final = 20_000  # how many ids are read at once: each page scans the FAILED and DEAD events
Event = tuple[str, UUID]


@dataclass(frozen=True, slots=True)
class Batch:
    """What one transaction did."""

    affected: int = 0
    released: Released = field(default_factory=Released)
    held: tuple[Event, ...] = ()


@dataclass(slots=True)
class Tally:
    """What the transactions of an act did together."""

    affected: int = 0
    released: Released = field(default_factory=Released)
    held: list[Event] = field(default_factory=list)

    def add(self, batch: Batch) -> None:
        """Count a batch."""
        self.affected += batch.affected
        self.released += batch.released
        self.held += batch.held


async def act_on_all(desk: Desk, act: Act, matching: EventFilter) -> Done:
    """Act on every FAILED or DEAD event that matches now; report those that stayed in flight."""
    work = _Work(desk, act, matching.within(desk.transactions).for_act())
    async for page in work.pages():
        await work.act_on(page)
    await work.come_back_to_held()
    if not work.tally.affected:
        await desk.transactions.write(work.record_nothing)
    desk.wake()
    done = work.tally
    return Done(act.decision, act.audit_id, done.affected, done.released, len(done.held))


def batches(events: Sequence[Event], size: int) -> Iterator[tuple[str, list[UUID]]]:
    """Cut events into batches of one tenant each."""
    for tenant_id, group in groupby(events, key=itemgetter(0)):
        ids = [event_id for _, event_id in group]
        for start in range(0, len(ids), size):
            yield tenant_id, ids[start : start + size]


@dataclass(frozen=True, slots=True)
class _Work:
    desk: Desk
    act: Act
    matching: EventFilter
    tally: Tally = field(default_factory=Tally)

    async def pages(self) -> AsyncIterator[list[Event]]:
        """Yield the events that match, by tenant and number; events that fail later are left."""
        read = self.desk.transactions.read
        highest = await read(self._highest)
        after: tuple[str, int] = ("", 0)
        while page := await read(partial(self._page, after, highest)):
            yield [(row.tenant_id, row.id) for row in page]
            after = page[-1].tenant_id, page[-1].seq

    async def act_on(self, events: Sequence[Event]) -> None:
        """Act on events, one transaction for each batch."""
        for tenant_id, ids in batches(events, self.desk.limits.batch):
            body = partial(self._act_on_batch, tenant_id, ids)
            self.tally.add(await self.desk.transactions.write(body))

    async def come_back_to_held(self) -> None:
        """Try events in open claims again, for as long as an act waits."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + self.desk.limits.wait.total_seconds()
        while self.tally.held and clock() < deadline:
            await asyncio.sleep(PAUSE)
            events, self.tally.held = self.tally.held, []
            await self.act_on(events)

    def record_nothing(self, connection: Connection) -> None:
        """Record an act that reached no event."""
        tenant_id = self.matching.tenant_id or ALL
        self.desk.record(connection, self.act, tenant_id, self._subject(), affected=0)

    def _highest(self, connection: Connection) -> int:
        table = self.desk.transactions.table(outbox)
        query = select(func.max(table.c.seq)).where(*self.matching.acted_on(table))
        return connection.scalar(query) or 0

    def _page(
        self, after: tuple[str, int], highest: int, connection: Connection
    ) -> Sequence[Row[Any]]:
        table = self.desk.transactions.table(outbox)
        place = tuple_(table.c.tenant_id, table.c.seq)
        query: Select[Any] = (
            select(table.c.tenant_id, table.c.id, table.c.seq)
            .where(*self.matching.acted_on(table), table.c.seq <= highest)
            .where(place > tuple_(*map(literal, after)))
            .order_by(table.c.tenant_id, table.c.seq)
            .limit(PAGE)
        )
        return connection.execute(query).all()

    def _act_on_batch(self, tenant_id: str, ids: Sequence[UUID], connection: Connection) -> Batch:
        """Act on those of a batch that are free; a row that another transaction has is left to it."""
        rows = lock_troubled(connection, self.desk.schema, tenant_id, ids)
        claims = open_claims(connection, self.desk.schema)
        held = {row.id for row in rows if claim_on(claims, row.seq) is not None}
        free = [row for row in rows if row.id not in held and self.act.changes(row)]
        places = tuple((tenant_id, event_id) for event_id in held)
        if not free:
            return Batch(held=places)
        released = self.desk.carry_out(connection, self.act, tenant_id, free, self._subject())
        return Batch(len(free), released, places)

    def _subject(self) -> dict[str, Any]:
        subject: dict[str, Any] = {"filter": self.matching.as_json()}
        if self.tally.affected:
            subject["continues"] = str(self.act.audit_id)
        return subject
