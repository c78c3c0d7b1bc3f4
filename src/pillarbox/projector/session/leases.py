"""Membership and leases: rows that the database's clock judges."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Integer, delete, func, or_, select, update

from pillarbox.projector.assignment import moves
from pillarbox.projector.scope import Neighbour, Scope, check_apart
from pillarbox.projector.session.settling import Settling
from pillarbox.projector.session.tables import Tables, listed, upsert
from pillarbox.projector.session.transactions import time_of
from pillarbox.projector.store import Member, Ownership, Suspects

# The same as in join.sql: joining goes one by one, whatever the store.
_JOINING = 7017483652


@dataclass(slots=True)
class Leases:
    """Keep the leases of one member."""

    tables: Tables
    scope: Scope
    settling: Settling
    lease: timedelta
    member: Member | None = None

    def join(self, connection: Connection, member: Member) -> None:
        """Become a member, unless another one serves some of the same tenants differently."""
        self.member = member
        self._enter(connection)

    def keep(self, connection: Connection) -> Ownership:
        """Renew leases, and take or name for hand-over what the share asks for."""
        now = time_of(connection)
        epochs = self._renew(connection, now)
        if epochs:
            # Our last renewal may have been committed after another one had judged and joined.
            self._check_apart(connection, self._seen_lately(now))
            self._show(connection, now)
        else:
            # No lease of ours has held: others may have taken us for dead, and joined.
            self._enter(connection)
        move = moves(self._me, self._living(connection, now), epochs, self.tables.shards)
        if not move.take:
            return Ownership(epochs, move.hand_over)
        taken = self._take(connection, move.take, now)
        return Ownership(epochs | taken, move.hand_over, self._unfinished(connection, taken, now))

    def hand_over(self, connection: Connection, shards: Sequence[int] | None = None) -> None:
        """Give leases back: these, or all."""
        lease = self.tables.lease.c
        giving = update(self.tables.lease).where(
            lease.scope == self.scope.name, lease.member_id == self._me
        )
        if shards is not None:
            wanted = listed(connection, [{"shard": shard} for shard in shards], shard=Integer())
            giving = giving.where(lease.shard.in_(select(wanted.c.shard)))
        connection.execute(giving.values(member_id=None, expires_at=None))

    def leave(self, connection: Connection) -> None:
        """Give everything back and be no member any more."""
        if self.member is None:
            return
        self.hand_over(connection)
        claim = self.tables.claim.c
        own = connection.execute(select(claim.claim_id).where(claim.member_id == self._me))
        self.settling.end(connection, own.scalars().all(), time_of(connection))
        member = self.tables.member
        connection.execute(delete(member).where(member.c.member_id == self._me))

    def tidy(self, connection: Connection, active: Sequence[UUID]) -> None:
        """Remove claims that ended, claims of ours that we do not know, members long gone."""
        now = time_of(connection)
        claim, end, member = self.tables.claim, self.tables.claim_end, self.tables.member
        ended = end.c.ended_at < now - self.lease
        unknown = (claim.c.member_id == self._me) & (claim.c.claimed_at < now - 2 * self.lease)
        connection.execute(
            delete(claim).where(
                or_(
                    claim.c.claim_id.in_(select(end.c.claim_id).where(ended)),
                    unknown & claim.c.claim_id.not_in(active),
                )
            )
        )
        connection.execute(delete(end).where(ended))
        gone = (member.c.seen_at < now - 10 * self.lease) & ~self._holds_a_lease(now)
        connection.execute(delete(member).where(gone))

    @property
    def _me(self) -> UUID:
        assert self.member is not None, "join comes first"  # noqa: S101 - a slip of ours
        return self.member.member_id

    def _enter(self, connection: Connection) -> None:
        """Show signs of life as one whom nobody took into account so far."""
        if connection.dialect.name == "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock(_JOINING)))
        now = time_of(connection)
        self._check_apart(connection, or_(self._seen_lately(now), self._holds_a_lease(now)))
        lacking = [{"scope": self.scope.name, "shard": n} for n in range(self.tables.shards)]
        connection.execute(upsert(connection, self.tables.lease).on_conflict_do_nothing(), lacking)
        self._show(connection, now)

    def _check_apart(self, connection: Connection, lives: ColumnElement[bool]) -> None:
        rows = self.tables.member.c
        query = select(rows.scope, rows.host, rows.process_id).where(
            lives, rows.member_id != self._me
        )
        check_apart(self.scope, (Neighbour(*row) for row in connection.execute(query)))

    def _seen_lately(self, now: datetime) -> ColumnElement[bool]:
        return self.tables.member.c.seen_at > now - self.lease

    def _holds_a_lease(self, now: datetime) -> ColumnElement[bool]:
        """Hold for members whose leases have not expired; they may be longer than ours."""
        lease = self.tables.lease.c
        held = select(lease.member_id).where(lease.expires_at > now, lease.member_id.is_not(None))
        return self.tables.member.c.member_id.in_(held)

    def _show(self, connection: Connection, now: datetime) -> None:
        """Show signs of life, also after the others have tidied us away."""
        assert self.member is not None, "join comes first"  # noqa: S101 - a slip of ours
        connection.execute(
            upsert(connection, self.tables.member)
            .values(
                member_id=self.member.member_id,
                scope=str(self.scope),
                service=self.member.service,
                host=self.member.host,
                process_id=self.member.process_id,
                version=self.member.version,
                seen_at=now,
            )
            .on_conflict_do_update(index_elements=["member_id"], set_={"seen_at": now})
        )

    def _living(self, connection: Connection, now: datetime) -> Sequence[UUID]:
        rows = self.tables.member.c
        query = select(rows.member_id).where(
            rows.scope == str(self.scope),
            or_(self._seen_lately(now), rows.member_id == self._me),
        )
        return connection.execute(query).scalars().all()

    def _renew(self, connection: Connection, now: datetime) -> dict[int, int]:
        """Renew the leases that have not expired."""
        lease = self.tables.lease.c
        renewed = connection.execute(
            update(self.tables.lease)
            .where(lease.scope == self.scope.name, lease.member_id == self._me)
            .where(lease.expires_at > now)
            .values(expires_at=now + self.lease)
            .returning(lease.shard, lease.epoch)
        )
        return {row.shard: row.epoch for row in renewed}

    def _take(self, connection: Connection, count: int, now: datetime) -> dict[int, int]:
        """Take leases that are free or expired, the longest first; leave those being settled."""
        lease = self.tables.lease.c
        free = connection.execute(
            select(lease.shard)
            .where(lease.scope == self.scope.name)
            .where(or_(lease.member_id.is_(None), lease.expires_at <= now))
            .order_by(lease.expires_at.nulls_first(), lease.shard)
            .limit(count)
            .with_for_update(skip_locked=True)
        ).scalars()
        shards = listed(connection, [{"shard": shard} for shard in free], shard=Integer())
        taken = connection.execute(
            update(self.tables.lease)
            .where(lease.scope == self.scope.name, lease.shard.in_(select(shards.c.shard)))
            .values(member_id=self._me, epoch=lease.epoch + 1, expires_at=now + self.lease)
            .returning(lease.shard, lease.epoch)
        )
        return {row.shard: row.epoch for row in taken}

    def _unfinished(
        self, connection: Connection, taken: Mapping[int, int], now: datetime
    ) -> Suspects:
        """End the claims that former owners of these shards left open, and tell their events."""
        claim, end = self.tables.claim.c, self.tables.claim_end.c
        rows = connection.execute(
            select(claim.claim_id, claim.member_id, claim.shards, claim.epochs, claim.seqs)
            .where(claim.scope == self.scope.name, claim.member_id != self._me)
            .where(~select(end.claim_id).where(end.claim_id == claim.claim_id).exists())
        ).all()
        owners = self._owners(connection, now) if rows else {}
        left = [
            row
            for row in rows
            if not taken.keys().isdisjoint(row.shards)
            # A living owner still holds one of its shards under the claim's epoch.
            and not any(
                owners.get(shard) == (row.member_id, epoch)
                for shard, epoch in zip(row.shards, row.epochs, strict=True)
            )
        ]
        self.settling.end(connection, [row.claim_id for row in left], now)
        return Suspects(
            frozenset(seq for row in left for seq in row.seqs),
            max((len(row.seqs) for row in left), default=0),
        )

    def _owners(self, connection: Connection, now: datetime) -> dict[int, tuple[UUID, Any]]:
        lease = self.tables.lease.c
        rows = connection.execute(
            select(lease.shard, lease.member_id, lease.epoch).where(
                lease.scope == self.scope.name, lease.expires_at > now
            )
        )
        return {shard: (member_id, epoch) for shard, member_id, epoch in rows}
