-- Purpose: begin a settling transaction: hold the leases until it ends.
-- Locks: FOR KEY SHARE on the lease rows; a takeover waits, or is seen here.
-- Index: the primary key.
SELECT l.shard
FROM @{schema}outbox_lease AS l
JOIN unnest(%(shards)s::integer[], %(epochs)s::bigint[]) AS mine(shard, epoch)
    ON l.scope = %(scope)s AND l.shard = mine.shard AND l.epoch = mine.epoch
    AND l.member_id = %(member)s
FOR KEY SHARE OF l
