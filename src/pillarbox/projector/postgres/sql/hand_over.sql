-- Purpose: give leases back, so that another member takes them at once.
-- Locks: the lease rows; the server ends the session of a member that freezes with them.
-- Index: the primary key.
UPDATE @{schema}outbox_lease SET member_id = NULL, expires_at = NULL
WHERE scope = %(scope)s AND member_id = %(member)s
    AND (%(shards)s::integer[] IS NULL OR shard = ANY(%(shards)s::integer[]))
RETURNING set_config('idle_in_transaction_session_timeout', %(idle)s, true)
