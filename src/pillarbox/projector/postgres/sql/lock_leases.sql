-- Purpose: begin a settling transaction: hold the leases until it ends.
-- Locks: FOR KEY SHARE on the lease rows; a takeover waits, or is seen here.
-- Index: the primary key.
-- An owner that freezes in the middle of the transaction must not hold them for ever: the server ends
-- its session, and the lease can be taken over.
SELECT l.shard, set_config('idle_in_transaction_session_timeout', %(idle)s, true)
FROM @{schema}outbox_lease AS l
WHERE l.scope = %(scope)s AND l.shard = ANY(%(shards)s::integer[]) AND l.member_id = %(member)s
    AND l.epoch = (%(epochs)s::bigint[])[array_position(%(shards)s::integer[], l.shard)]
FOR KEY SHARE
