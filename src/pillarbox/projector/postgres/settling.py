"""Settle: write outcomes in bulk, behind the fence of the leases."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from psycopg import AsyncCursor

from pillarbox.outbox.release import CHUNK, chunk_for
from pillarbox.projector.config import OutboxProjectorConfig
from pillarbox.projector.postgres.claims import array, texts
from pillarbox.projector.postgres.line import Connection, Line
from pillarbox.projector.postgres.statements import Statements
from pillarbox.projector.scope import Scope
from pillarbox.projector.store import (
    UNCOUNTED,
    Failure,
    Lane,
    OutboxEvent,
    Settled,
    Settlement,
)

# Settling so many events by pairs costs more than planning it, which takes 0.5 ms.
_WORTH_A_PLAN: Final = 64
# Settling fewer keeps its plan, once so many events are SENT and in the table: a plan that was made
# before would read all of it.
_WORTH_AN_INDEX: Final = 10_000
# Of the keys of a tenant with a rate that wait for a topic so many are looked at, from either side.
_KEYS_LOOKED_AT: Final = 2_000


class Settling:
    """Own the connection that writes outcomes."""

    def __init__(
        self,
        line: Line,
        statements: Statements,
        *,
        scope: Scope,
        member_id: UUID,
        config: OutboxProjectorConfig,
    ) -> None:
        self._line, self._statements = line, statements
        self._lease = {"scope": scope.name, "member": member_id}
        self._idle = str(round(config.lease * 1_000))
        self._scope = scope.parameters()
        deletes = config.on_sent == "delete"
        name = "settle_deleted" if deletes else "settle_sent"
        self._sent, self._sent_many = statements[name], statements[f"{name}_many"]
        self._deletes, self._kept = deletes, 0
        self._skip_dead, self._by_row = config.on_dead == "skip", config.claim == "row"

    async def settle(self, settlement: Settlement, epochs: Mapping[int, int]) -> Settled:
        """Write the outcomes of shards whose leases are held."""
        async with self._line.use() as connection:
            if not settlement.troubled:
                return await self._settle_sent(connection, settlement, epochs, durable="off")
            async with connection.transaction():
                lost = await self._lock_leases(connection, epochs)
                held = settlement.without(lost)
                await self._settle_sent(connection, held, epochs, durable="on")
                again = await self._settle_troubled(connection, held)
            return Settled(lost, again)

    async def release_topic(
        self, topic: str, keys: int, apart: Mapping[str, int], chunk: int
    ) -> int:
        """Let go of keys that wait for a topic."""
        limits = {"apart": list(apart), "rooms": list(apart.values()), "window": _KEYS_LOOKED_AT}
        async with self._line.use() as connection, connection.transaction():
            parameters = {**self._scope, **limits, "topic": topic, "keys": keys, "idle": self._idle}
            locked = await self._rows(connection, "lock_topic", parameters)
            lanes = [(tenant, key) for tenant, key, _ in locked]
            await self._release(connection, lanes, chunk)
            return len(lanes)

    async def _settle_sent(
        self,
        connection: Connection,
        settlement: Settlement,
        epochs: Mapping[int, int],
        *,
        durable: str,
    ) -> Settled:
        sent = settlement.sent
        tenants = [event.lane[0] for event in sent]
        parameters = {
            **self._lease,
            "durable": durable,
            "shards": array(epochs),
            "epochs": array(epochs.values()),
            "ids": array([event.envelope.event_id for event in sent]),
            "ended": array(settlement.ended),
        }
        prepare = None
        if len(set(tenants)) == 1:
            statement, parameters["tenant"] = self._sent, tenants[0]
        else:
            statement, parameters["tenants"] = self._sent_many, texts(tenants)
            if durable == "on" or len(sent) >= _WORTH_A_PLAN or self._kept < _WORTH_AN_INDEX:
                prepare = False  # as in `_execute`
        cursor = await connection.execute(statement, parameters, prepare=prepare)
        held = {shard for shard, *_ in await cursor.fetchall()}
        self._kept += 0 if self._deletes else len(sent)
        return Settled(frozenset(epochs.keys() - held))

    async def _lock_leases(
        self, connection: Connection, epochs: Mapping[int, int]
    ) -> frozenset[int]:
        held = {"shards": array(epochs), "epochs": array(epochs.values())}
        parameters = {**self._lease, **held, "idle": self._idle}
        rows = await self._rows(connection, "lock_leases", parameters)
        return frozenset(epochs.keys() - {shard for shard, _ in rows})

    async def _settle_troubled(
        self, connection: Connection, settlement: Settlement
    ) -> tuple[OutboxEvent, ...]:
        """Write what is more than sent; return the events that were to be set aside and were not."""
        await self._lock_keys(connection, settlement)
        await self._count(connection, settlement.counted)
        written = await self._fail(connection, settlement.refused)
        behind = _first_refused(event for event, why in written if self._blocks(event, why))
        await self._block(connection, [(event, event.seq, None) for event in behind])
        await self._block(connection, _first_waiting(settlement.waiting))
        aside = settlement.aside + settlement.waiting
        set_aside = await self._set_aside(connection, aside)
        again = tuple(event for event in aside if event.seq not in set_aside)
        if self._by_row and again:
            await self._execute(connection, "unmark", _ids(again))
        passed = [event for event, why in settlement.dead if not self._blocks(event, why)]
        freed = [event for event in (*settlement.sent, *passed) if event.blocker]
        if freed:
            lanes = await self._rows(connection, "lock_blocked", _keys(freed))
            await self._release(connection, lanes)
        return again

    async def _lock_keys(self, connection: Connection, settlement: Settlement) -> None:
        """Lock the blocked keys of all that follows, in one order: operators lock them, too."""
        lanes = {_key(event) for event in settlement.of_blocked_keys()}
        if lanes:
            parameters = {
                "tenants": [tenant for tenant, _ in lanes],
                "keys": [key for _, key in lanes],
            }
            await self._execute(connection, "lock_keys", parameters)

    def _blocks(self, event: OutboxEvent, why: Failure) -> bool:
        return why.blocks(event, skip_dead=self._skip_dead)

    async def _count(self, connection: Connection, events: Sequence[OutboxEvent]) -> None:
        if events:
            parameters = {**_ids(events), "before": [event.attempts for event in events]}
            await self._execute(connection, "count_attempt", parameters)

    async def _fail(
        self, connection: Connection, failed: Sequence[tuple[OutboxEvent, Failure]]
    ) -> list[tuple[OutboxEvent, Failure]]:
        """Write FAILED and DEAD; return those that stood as expected."""
        if not failed:
            return []
        events = [event for event, _ in failed]
        decided = [why.decided(skip_dead=self._skip_dead) for _, why in failed]
        parameters = {
            **_ids(events),
            "before": [event.attempts for event in events],
            "attempts": [event.attempts + (why.code not in UNCOUNTED) for event, why in failed],
            "delays": [why.delay for _, why in failed],
            "classes": [why.code for why in decided],
            "messages": [why.reason for why in decided],
        }
        written = {
            row_id for (row_id,) in await self._rows(connection, "settle_failed", parameters)
        }
        return [pair for pair in failed if pair[0].event_id in written]

    async def _block(
        self, connection: Connection, blocks: Sequence[tuple[OutboxEvent, int, str | None]]
    ) -> None:
        if blocks:
            parameters = {
                **_keys([event for event, _, _ in blocks]),
                "seqs": [seq for _, seq, _ in blocks],
                "topics": [topic for _, _, topic in blocks],
            }
            await self._execute(connection, "block_keys", parameters)

    async def _set_aside(
        self, connection: Connection, events: Sequence[OutboxEvent]
    ) -> frozenset[int]:
        if not events:
            return frozenset()
        lanes = {_key(event) for event in events}
        parameters = {
            **_keys(events),
            "lane_tenants": [tenant for tenant, _ in lanes],
            "lane_keys": [key for _, key in lanes],
        }
        rows = await self._rows(connection, "set_aside", parameters)
        return frozenset(seq for (seq,) in rows)

    async def _release(
        self, connection: Connection, lanes: Sequence[Lane], most: int = CHUNK
    ) -> None:
        if lanes:
            parameters = {
                "tenants": [tenant for tenant, _ in lanes],
                "keys": [key for _, key in lanes],
                "chunk": min(most, chunk_for(len(lanes))),
            }
            await self._execute(connection, "release_keys", parameters)

    async def _rows(
        self, connection: Connection, statement: str, parameters: Mapping[str, Any]
    ) -> list[Any]:
        cursor = await self._execute(connection, statement, parameters)
        return await cursor.fetchall()

    async def _execute(
        self, connection: Connection, statement: str, parameters: Mapping[str, Any]
    ) -> AsyncCursor[Any]:
        # A plan that was made for a small table may read all of it for each event, and would stay
        # when it is large. These statements are few: each is planned for the table as it is.
        return await connection.execute(self._statements[statement], parameters, prepare=False)


def _first_refused(events: Iterable[OutboxEvent]) -> list[OutboxEvent]:
    """Choose the event that blocks each key: no statement may change a row twice."""
    first: dict[Lane, OutboxEvent] = {}
    for event in events:
        first.setdefault(_key(event), event)
    return list(first.values())


def _first_waiting(events: Iterable[OutboxEvent]) -> list[tuple[OutboxEvent, int, str | None]]:
    """Block each key below its first event that waits for a topic."""
    first: dict[Lane, OutboxEvent] = {}
    for event in events:
        key = _key(event)
        if key not in first or event.seq < first[key].seq:
            first[key] = event
    return [(event, event.seq - 1, event.topic) for event in first.values()]


def _ids(events: Sequence[OutboxEvent]) -> dict[str, Any]:
    return {
        "tenants": [event.lane[0] for event in events],
        "ids": [UUID(event.event_id) for event in events],
    }


def _keys(events: Sequence[OutboxEvent]) -> dict[str, Any]:
    return {**_ids(events), "keys": [_key(event)[1] for event in events]}


def _key(event: OutboxEvent) -> Lane:
    """Return the key that stands in the row; without order it is not the event's lane."""
    return event.lane[0], event.envelope.key or event.event_id
