-- Purpose: remove delivered events and end their claims.
-- Locks: FOR KEY SHARE on the lease rows first, so that a takeover waits for this transaction or
--   this one sees the takeover and writes nothing; then the rows of the events.
-- Index: the primary keys.
-- A removal that is lost is sent again, so the commit need not wait for the disk.
WITH lease AS MATERIALIZED (
    SELECT l.shard
    FROM @{schema}outbox_lease AS l
    WHERE l.scope = %(scope)s AND l.shard = ANY(%(shards)s::integer[]) AND l.member_id = %(member)s
        AND l.epoch = (%(epochs)s::bigint[])[array_position(%(shards)s::integer[], l.shard)]
    FOR KEY SHARE
), sent AS (
    DELETE FROM @{schema}outbox AS o
    @{using}WHERE @{match} AND o.status @{open} AND @{fenced}
), ended AS (
    INSERT INTO @{schema}outbox_claim_end (claim_id)
    SELECT unnest(%(ended)s::uuid[]) ON CONFLICT DO NOTHING
)
SELECT l.shard, set_config('synchronous_commit', %(durable)s, true) FROM lease AS l
