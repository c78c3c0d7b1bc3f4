"""Claim events: read what is new and what waits, then commit the claim, on one connection."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final
from uuid import UUID

from pillarbox.projector.config import OutboxProjectorConfig
from pillarbox.projector.postgres.connecting import is_pooled
from pillarbox.projector.postgres.line import Connection, Line
from pillarbox.projector.postgres.reader import Plan, Reader, Row, Snapshot
from pillarbox.projector.postgres.rows import event_of
from pillarbox.projector.postgres.statements import Statements
from pillarbox.projector.scope import Scope
from pillarbox.projector.store import Claimed, ClaimRequest, OutboxEvent
from pillarbox.projector.turns import Pair

# Large payloads: each batch that is too big has an eighth of the events next time.
_SHRINK: Final = 3
# After a large payload so many claims count their bytes before they are sent.
_SIZED_FOR: Final = 100
_ANY_SIZE: Final = 2_147_483_647
_LARGE: Final = 25  # the column of a row that tells of a payload that was left out
_CLAIMED: Final = 7  # the column of the header that tells whether a claim was made
# With more events in hand there is no hurry; telling them all would cost more than it saves.
_FEW: Final = 1_000
_AGAIN: Final = Claimed((), more=True)
_NOT_HELD: Final = Claimed((), more=False, held=False)


class Claims:
    """Own the connection that reads, and what is known of the backlog behind it."""

    def __init__(
        self,
        line: Line,
        statements: Statements,
        *,
        scope: Scope,
        member_id: UUID,
        source: str,
        config: OutboxProjectorConfig,
    ) -> None:
        self._line, self._statements = line, statements
        self._scope, self._source = scope, source
        self._ordered, self._by_row = config.ordered, config.claim == "row"
        self._idle = str(round(config.lease * 1_000))
        self._marker = f"pillarbox.reader_{member_id.hex}"
        self._reader = Reader()
        self._shrunk = self._sized = 0
        self._sweeps = False
        self._bytes = config.batch_bytes
        self._epochs: Mapping[int, int] | None = None
        self._leases: Mapping[str, str] = {}
        self._fixed: Mapping[str, Any] = {
            "scope": scope.name,
            "member": member_id,
            "marker": self._marker,
            "bytes": config.batch_bytes,
            **scope.parameters(),
        }

    async def claim(self, request: ClaimRequest) -> Claimed:
        """Claim the next events of these shards."""
        try:
            return await self._claim_next(request)
        except BaseException:
            # What was read is not claimed. A pooler may give the same backend again, whose marker
            # would then say that all of it was taken.
            self._reader.forget()
            raise

    async def _claim_next(self, request: ClaimRequest) -> Claimed:
        if request.news:
            request = request._replace(passed_over=self._reader.behind(request.passed_over))
        async with self._line.use() as connection:
            shards = self._reader.undiscovered(request.epochs)
            known = self._reader.since if not shards else None
            if known is not None and self._sweeps:
                return await self._sweep_and_claim(connection, request, known)
            if known is not None and not is_pooled(connection):
                return await self._read_and_claim(connection, request, known)
            # One transaction, so that a pooler gives all statements the same backend.
            async with connection.transaction():
                await self._bound(connection)
                since = known or await self._discover(connection, shards)
                return await self._read_and_claim(connection, request, since)

    async def _sweep_and_claim(
        self, connection: Connection, request: ClaimRequest, since: Snapshot
    ) -> Claimed:
        """Sweep and read in one snapshot: so something is claimed, however much is written meanwhile."""
        self._sweeps = False
        async with connection.transaction():
            await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            await self._bound(connection)
            await self._sweep(connection, request.epochs, since)
            return await self._read_and_claim(connection, request, self._reader.since or since)

    async def _bound(self, connection: Connection) -> None:
        """Have the server end the session if the transaction rests for longer than a lease."""
        await connection.execute(self._statements["bound"], {"idle": self._idle})

    async def _read_and_claim(
        self, connection: Connection, request: ClaimRequest, since: Snapshot
    ) -> Claimed:
        limit = max(1, request.limit >> self._shrunk)
        plan = self._reader.plan(since, limit, request.passed_over, request.quotas)
        at_once = self._claims_at_once(request, plan)
        in_hand = frozenset(request.in_hand) if at_once else request.in_hand
        header, rows = await self._read(connection, request, plan, in_hand, at_once=at_once)
        if (again := self._unusable(header, rows)) is not None:
            return again
        claimed = self._take(request, plan, Snapshot.parse(header[2]), rows, in_hand)
        if claimed.events and not (
            header[_CLAIMED] == 1
            if at_once
            else await self._claim(connection, request, claimed.events)
        ):
            # A lease is lost: what was read is not ours to send, and is read again if it is.
            self._reader.lose(request.epochs)
            return _NOT_HELD
        return claimed

    def _claims_at_once(self, request: ClaimRequest, plan: Plan) -> bool:
        """Tell whether reading and claiming can be one statement."""
        chosen = plan.pairs or request.quotas or len(request.in_hand) > _FEW
        return not (chosen or self._sized or self._by_row)

    def _unusable(self, header: Row, rows: Sequence[Row]) -> Claimed | None:
        """Learn why what was read cannot be used, if it is so, and have it read differently."""
        _, _, _, _, backend, _, _, _, fits, small, *_ = header
        if backend is None:
            # A backend that is new to us: what it calls new is not what we have not seen.
            self._reader.forget()
            return _AGAIN
        if not fits:
            self._sweeps = True
            return _AGAIN
        if not small:
            self._shrunk += _SHRINK
            return _AGAIN
        self._shrunk = max(0, self._shrunk - 1)
        if any(row[_LARGE] for row in rows):
            self._sized = _SIZED_FOR
            return _AGAIN
        self._sized = max(0, self._sized - 1)
        return None

    async def _claim(
        self, connection: Connection, request: ClaimRequest, events: Sequence[OutboxEvent]
    ) -> bool:
        """Commit the claim; False if a lease of these events is lost."""
        shards = sorted({event.shard for event in events})
        parameters = {
            **self._fixed,
            **self._claim_of(request),
            "needed_shards": array(shards),
            "needed_epochs": array(request.epochs[shard] for shard in shards),
            "seqs": array([event.seq for event in events]),
        }
        if self._by_row:
            parameters["tenants"] = texts([event.lane[0] for event in events])
            parameters["ids"] = array([event.event_id for event in events])
        cursor = await connection.execute(self._statements["claim"], parameters)
        row = await cursor.fetchone()
        return row is not None and row[0] == 1

    def _claim_of(self, request: ClaimRequest) -> dict[str, Any]:
        # The same mapping comes until the leases change: nobody changes one that was handed on.
        if request.epochs is not self._epochs:
            self._epochs = request.epochs
            self._leases = {
                "shards": array(request.epochs),
                "epochs": array(request.epochs.values()),
            }
        return {"claim": request.claim_id, **self._leases}

    def read_again(self, events: Iterable[OutboxEvent]) -> None:
        """Have events read again."""
        for event in events:
            self._reader.read_again(event.shard, event.lane[0], event.seq)

    def forget(self, shards: Iterable[int]) -> None:
        """Have shards read from their beginning."""
        self._reader.lose(shards)

    def _take(
        self,
        request: ClaimRequest,
        plan: Plan,
        snapshot: Snapshot,
        rows: Sequence[Row],
        in_hand: AbstractSet[int],
    ) -> Claimed:
        places = self._reader.digest(
            plan,
            snapshot,
            rows,
            in_hand=in_hand,
            passed_over=request.passed_over,
            most=request.quotas,
        )
        source = self._source
        ordered = self._ordered
        events = [event_of(rows[place], source, ordered=ordered) for place in places]
        waiting = any(tenant not in request.passed_over for tenant in self._reader.turns.tenants())
        beside = plan.pairs or request.news
        news = self._reader.news(rows, places) if beside else frozenset()
        return Claimed(events, more=waiting, news=news)

    async def _read(
        self,
        connection: Connection,
        request: ClaimRequest,
        plan: Plan,
        in_hand: AbstractSet[int],
        *,
        at_once: bool,
    ) -> tuple[Row, list[Row]]:
        rows_at_most = plan.fits + sum(plan.quotas)
        share = _ANY_SIZE if self._sized or rows_at_most == 1 else self._bytes // rows_at_most
        statement = "read_and_claim" if at_once else "read_sized" if self._sized else "read"
        cursor = connection.cursor(binary=True)
        await cursor.execute(
            self._statements[statement],
            {
                **self._fixed,
                **self._claim_of(request),
                "in_hand": array(in_hand) if at_once else None,
                "passed_over": texts(request.passed_over),
                "xmax": plan.since.xmax,
                "xip": array(plan.since.open),
                "fits": plan.fits,
                "share": share,
                "pair_shards": array(pair.shard for pair in plan.pairs),
                "pair_tenants": texts(pair.tenant_id for pair in plan.pairs),
                "pair_after": array(pair.after for pair in plan.pairs),
                "pair_quotas": array(plan.quotas),
            },
        )
        header, *rows = await cursor.fetchall()
        return header, rows

    async def _discover(self, connection: Connection, shards: Sequence[int]) -> Snapshot:
        """Learn the backlog of shards that are new to us; return the feed's beginning."""
        if self._by_row:
            ours = {**self._scope.parameters(), "shards": array(shards)}
            await connection.execute(self._statements["unmark_shards"], ours)
        snapshot, pairs = await self._pairs(connection, "discover", {"shards": array(shards)})
        self._reader.discovered(shards, snapshot, pairs)
        return self._reader.since or snapshot

    async def _sweep(
        self, connection: Connection, epochs: Mapping[int, int], since: Snapshot
    ) -> None:
        parameters = {"shards": array(epochs), "xmax": since.xmax, "xip": array(since.open)}
        self._reader.swept(*await self._pairs(connection, "sweep", parameters))

    async def _pairs(
        self, connection: Connection, statement: str, parameters: Mapping[str, Any]
    ) -> tuple[Snapshot, list[Pair]]:
        marked = {**parameters, "marker": self._marker}
        cursor = await connection.execute(self._statements[statement], marked)
        header, *rows = await cursor.fetchall()
        pairs = [
            Pair(shard, tenant_id, seq - 1)
            for shard, tenant_id, seq, _ in rows
            if self._scope.serves(tenant_id)
        ]
        if header[3] is None:
            self._reader.forget()
        return Snapshot.parse(header[1]), pairs


def array(values: Iterable[object]) -> str:
    """Write an array literal of numbers or ids, none of which needs quoting."""
    return "{" + ",".join(map(str, values)) + "}"


def texts(values: Iterable[str]) -> str:
    """Write an array literal of tenants; one may be called `null`, or stand in another hand's row."""
    escaped = (value.replace("\\", r"\\").replace('"', r"\"") for value in values)
    return "{" + ",".join(f'"{value}"' for value in escaped) + "}"
