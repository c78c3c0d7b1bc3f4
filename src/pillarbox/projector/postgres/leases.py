"""Membership and leases: rows that the database's clock judges."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from pillarbox.errors import ScopeOverlaps
from pillarbox.projector.assignment import moves
from pillarbox.projector.postgres.claims import array
from pillarbox.projector.postgres.line import Connection, Line
from pillarbox.projector.postgres.statements import Statements
from pillarbox.projector.scope import Scope, read_scope
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
        async with self._line.use() as connection, connection.transaction():
            await connection.execute(self._statements["lock_joining"])
            for other in await self._rows(connection, "join"):
                scope = read_scope(other[1])
                if scope != self._scope and scope.overlaps(self._scope):
                    where = f"{other[2]}, process {other[3]}"
                    raise ScopeOverlaps(str(self._scope), str(scope), where)
            await connection.execute(self._statements["join_member"], self._parameters())

    async def keep(self, active: Sequence[UUID]) -> Ownership:
        """Renew leases, and take or name for hand-over what the share asks for."""
        async with self._line.use() as connection:
            members, epochs = await self._renew(connection)
            if self._me not in members:
                # Gone for so long that the others have tidied us away.
                await connection.execute(self._statements["join_member"], self._parameters())
                members = [*members, self._me]
            move = moves(self._me, members, epochs, self._shards)
            suspects = Suspects()
            if move.take:
                async with connection.transaction():
                    taken = dict(await self._rows(connection, "take", take=move.take))
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

    async def _renew(self, connection: Connection) -> tuple[list[UUID], dict[int, int]]:
        members: list[UUID] = []
        epochs: dict[int, int] = {}
        for kind, member_id, shard, epoch in await self._rows(connection, "renew"):
            if kind == "member":
                members.append(member_id)
            else:
                epochs[shard] = epoch
        return members, epochs

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
            **more,
        }
