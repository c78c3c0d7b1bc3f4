-- Purpose: give leases back, so that another member takes them at once.
-- Locks: the lease rows.
-- Index: the primary key.
UPDATE @{schema}outbox_lease SET member_id = NULL, expires_at = NULL
WHERE scope = %(scope)s AND member_id = %(member)s
    AND (%(shards)s::integer[] IS NULL OR shard = ANY(%(shards)s::integer[]))
