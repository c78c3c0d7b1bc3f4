-- Purpose: take leases that are free or expired, with the next epoch; the longest expired first, or
--   some would stand without an owner for as long as others come and go.
-- Locks: FOR UPDATE on those rows, passing over those that a settling transaction holds; the server
--   ends the session of a member that freezes with them.
-- Index: the primary key.
WITH free AS (
    SELECT l.scope, l.shard FROM @{schema}outbox_lease AS l
    WHERE l.scope = %(scope)s
        AND (l.member_id IS NULL OR l.expires_at <= clock_timestamp())
    ORDER BY l.expires_at NULLS FIRST, l.shard LIMIT %(take)s FOR UPDATE SKIP LOCKED
)
UPDATE @{schema}outbox_lease AS l
SET member_id = %(member)s, epoch = l.epoch + 1,
    expires_at = clock_timestamp() + make_interval(secs => %(lease)s)
FROM free WHERE l.scope = free.scope AND l.shard = free.shard
RETURNING l.shard, l.epoch, set_config('idle_in_transaction_session_timeout', %(idle)s, true)
