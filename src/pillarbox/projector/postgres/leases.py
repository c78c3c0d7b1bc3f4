"""Membership and leases: rows that the database's clock judges."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from pillarbox.projector.assignment import moves
from pillarbox.projector.postgres.claims import array
from pillarbox.projector.postgres.line import Connection, Line
from pillarbox.projector.postgres.statements import Statements
from pillarbox.projector.scope import Neighbour, Scope, check_apart
from pillarbox.projector.store import Member, Ownership, Suspects


class Leases:
    """Own the connection that keeps leases, apart from work that may wait for locks."""

    def __init__(
        self,
        line: Line,
        statements: Statements,
        *,
        scope: Scope,
        shards: int,
        lease: float,
    ) -> None:
        self._line, self._statements, self._scope = line, statements, scope
        self._shards, self._lease = shards, lease
        self._member: Member | None = None

    async def join(self, member: Member) -> None:
        """Become a member, unless another one serves some of the same tenants differently."""
        self._member = member
        async with self._line.use() as connection:
            await self._enter(connection)

    async def keep(self, active: Sequence[UUID]) -> Ownership:
        """Renew leases, and take or name for hand-over what the share asks for."""
        async with self._line.use() as connection:
            members, epochs = await self._renew(connection)
            if self._me not in members:
                # No lease of ours has held: others may have taken us for dead, and joined.
                await self._enter(connection)
                members = [*members, self._me]
            move = moves(self._me, members, epochs, self._shards)
            suspects = Suspects()
            if move.take:
                async with connection.transaction():
                    rows = await self._rows(connection, "take", take=move.take)
                    taken = {shard: epoch for shard, epoch, _ in rows}
                    suspects = await self._unfinished(connection, taken)
                epochs |= taken
            await connection.execute(
                self._statements["tidy"], self._parameters(active=array(active))
            )
        return Ownership(epochs, move.hand_over, suspects)

    async def hand_over(self, shards: Sequence[int]) -> None:
        """Give leases back."""
        async with self._line.use() as connection:
            await connection.execute(
                self._statements["hand_over"], self._parameters(shards=array(shards))
            )

    async def leave(self) -> None:
        """Give everything back and be no member any more."""
        async with self._line.use() as connection, connection.transaction():
            await connection.execute(self._statements["hand_over"], self._parameters(shards=None))
            await connection.execute(self._statements["leave"], self._parameters())

    @property
    def _me(self) -> UUID:
        assert self._member is not None, "join comes first"  # noqa: S101 - a slip of ours
        return self._member.member_id

    async def _enter(self, connection: Connection) -> None:
        """Show signs of life as one whom nobody took into account so far."""
        async with connection.transaction():
            await self._rows(connection, "lock_joining")
            found = await self._rows(connection, "join")
            check_apart(self._scope, (Neighbour(*row) for row in found))
            await connection.execute(self._statements["join_member"], self._parameters())

    async def _renew(self, connection: Connection) -> tuple[list[UUID], dict[int, int]]:
        """Return the members that share our tenants, we among them if a lease held, and the leases."""
        found = await self._rows(connection, "renew")
        members = [row for row in found if row[0] == "member"]
        # Our last renewal may have been committed after another one had judged and joined.
        check_apart(self._scope, (Neighbour(*row[4:]) for row in members))
        served = str(self._scope)
        epochs = {row[2]: row[3] for row in found if row[0] == "lease"}
        return [row[1] for row in members if row[4] == served], epochs

    async def _unfinished(self, connection: Connection, taken: dict[int, int]) -> Suspects:
        if not taken:
            return Suspects()
        claims = [
            seqs for (seqs,) in await self._rows(connection, "unfinished", shards=array(taken))
        ]
        return Suspects(
            frozenset(seq for seqs in claims for seq in seqs), max(map(len, claims), default=0)
        )

    async def _rows(self, connection: Connection, statement: str, **more: Any) -> list[Any]:
        cursor = await connection.execute(self._statements[statement], self._parameters(**more))
        return await cursor.fetchall()

    def _parameters(self, **more: Any) -> dict[str, Any]:
        assert self._member is not None, "join comes first"  # noqa: S101 - a slip of ours
        return {
            "scope": self._scope.name,
            "served": str(self._scope),
            "member": self._member.member_id,
            "service": self._member.service,
            "host": self._member.host,
            "process": self._member.process_id,
            "version": self._member.version,
            "lease": self._lease,
            "idle": str(round(self._lease * 1_000)),
            **more,
        }
