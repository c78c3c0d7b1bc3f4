"""The fence: whoever writes under a lease holds its row until the transaction ends."""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, Integer, select

from pillarbox.projector.session.tables import Tables, listed


@dataclass(frozen=True, slots=True)
class Fence:
    """The leases of one member."""

    tables: Tables
    scope: str
    member_id: UUID

    def lost(self, connection: Connection, epochs: Mapping[int, int]) -> frozenset[int]:
        """Name the shards that are not the member's under these epochs any more.

        The others stay its own until the transaction ends: on PostgreSQL a takeover waits for the
        row, or is waited for and seen; on SQLite this transaction has the only write lock.
        """
        lease = self.tables.lease.c
        shards = listed(connection, [{"shard": shard} for shard in epochs], shard=Integer())
        query = (
            select(lease.shard, lease.epoch, lease.member_id)
            .where(lease.scope == self.scope, lease.shard.in_(select(shards.c.shard)))
            .with_for_update(read=True, key_share=True)
        )
        held = {
            shard
            for shard, epoch, member_id in connection.execute(query)
            if member_id == self.member_id and epoch == epochs[shard]
        }
        return frozenset(epochs.keys() - held)
