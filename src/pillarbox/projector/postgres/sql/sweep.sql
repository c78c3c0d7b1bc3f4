-- Purpose: name the pairs (shard, tenant) of the rows that became claimable since a snapshot, each
--   with its lowest number, when they are more than a claim can take.
-- Locks: none.
-- Index: ix_outbox_txid.
-- The first row is the header: the snapshot, and whose backend this is.
WITH feed AS MATERIALIZED (
    SELECT o.shard_hash & @{mask} AS shard, o.tenant_id, o.seq FROM @{schema}outbox AS o
    WHERE o.status = 'NEW' AND o.set_aside IS NULL AND o.txid >= %(xmax)s::xid8
        AND (o.shard_hash & @{mask}) = ANY(%(shards)s::integer[])
    UNION ALL
    SELECT o.shard_hash & @{mask}, o.tenant_id, o.seq FROM @{schema}outbox AS o
    WHERE o.status = 'NEW' AND o.set_aside IS NULL AND o.txid = ANY(%(xip)s::xid8[])
        AND (o.shard_hash & @{mask}) = ANY(%(shards)s::integer[])
)
SELECT NULL::integer AS shard, pg_current_snapshot()::text AS tenant_id, NULL::bigint AS seq,
    current_setting(%(marker)s, true) AS reader
UNION ALL
SELECT shard, tenant_id, min(seq), NULL FROM feed GROUP BY shard, tenant_id
