-- Purpose: name the pairs (shard, tenant) that have claimable rows, each with its lowest number, and
--   mark this backend as known to the reader.
-- Locks: none.
-- Index: ix_outbox_claim, one probe for each pair: a loose scan.
-- The first row is the header: the snapshot. The marker lasts as long as the backend.
WITH RECURSIVE pair AS (
    SELECT s.shard, first.tenant_id, first.seq
    FROM unnest(%(shards)s::integer[]) AS s(shard)
    CROSS JOIN LATERAL (
        SELECT o.tenant_id, o.seq FROM @{schema}outbox AS o
        WHERE o.status = 'NEW' AND o.set_aside IS NULL AND (o.shard_hash & @{mask}) = s.shard
        ORDER BY o.tenant_id, o.seq LIMIT 1
    ) AS first
    UNION ALL
    SELECT p.shard, next.tenant_id, next.seq
    FROM pair AS p
    CROSS JOIN LATERAL (
        SELECT o.tenant_id, o.seq FROM @{schema}outbox AS o
        WHERE o.status = 'NEW' AND o.set_aside IS NULL AND (o.shard_hash & @{mask}) = p.shard
            AND o.tenant_id > p.tenant_id
        ORDER BY o.tenant_id, o.seq LIMIT 1
    ) AS next
)
SELECT NULL::integer AS shard, pg_current_snapshot()::text AS tenant_id, NULL::bigint AS seq,
    set_config(%(marker)s, 'known', false) AS reader
UNION ALL
SELECT shard, tenant_id, seq, NULL FROM pair
