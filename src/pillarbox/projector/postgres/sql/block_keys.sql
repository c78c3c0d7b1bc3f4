-- Purpose: block keys: behind an event, or until a topic can be had.
-- Locks: the rows of the blocked keys, in the columns' order: parameters would be sorted as the database
--   collates. Those that were blocked are locked already (lock_keys.sql).
-- Index: the primary key; coalesce() keeps it off the indexes of what failed, which looked cheap while
--   little had.
INSERT INTO @{schema}outbox_blocked_key AS b (tenant_id, key, event_id, seq, topic)
SELECT * FROM unnest(
    %(tenants)s::text[], %(keys)s::text[], %(ids)s::uuid[], %(seqs)s::bigint[], %(topics)s::text[]
) AS blocking(tenant_id, key, event_id, seq, topic)
ORDER BY tenant_id COLLATE "C", key COLLATE "C"
ON CONFLICT (tenant_id, key) DO UPDATE SET
    event_id = excluded.event_id, seq = excluded.seq, topic = excluded.topic, blocked_at = now()
-- An older event that was skipped, retried and refused again does not hide the one that blocks.
WHERE NOT EXISTS (
    SELECT FROM @{schema}outbox AS o
    WHERE o.tenant_id = b.tenant_id AND o.id = b.event_id AND b.event_id <> excluded.event_id
        AND coalesce(o.status, '') IN ('FAILED', 'DEAD')
)
