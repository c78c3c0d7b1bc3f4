-- Purpose: make claimable what has become due, and tell when the next event does.
-- Locks: the rows that become due, passing over those that another holds.
-- Index: ix_outbox_processing and ix_outbox_due.
WITH failed AS (
    SELECT o.tenant_id, o.id FROM @{schema}outbox AS o
    WHERE o.status = 'FAILED' AND o.retry_after <= now()
        AND (o.shard_hash & @{mask}) = ANY(%(shards)s::integer[])
    ORDER BY o.retry_after LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), later AS (
    SELECT o.tenant_id, o.id FROM @{schema}outbox AS o
    WHERE o.set_aside = 'later' AND o.deliver_at <= now()
        AND (o.shard_hash & @{mask}) = ANY(%(shards)s::integer[])
    ORDER BY o.deliver_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), due AS (
    SELECT * FROM failed UNION ALL SELECT * FROM later
), back AS (
    UPDATE @{schema}outbox AS o
    SET status = 'NEW', set_aside = NULL, txid = pg_current_xact_id()
    FROM due WHERE o.tenant_id = due.tenant_id AND o.id = due.id
    RETURNING 1
)
SELECT
    (SELECT count(*) FROM back),
    extract(epoch FROM least(
        (SELECT o.retry_after FROM @{schema}outbox AS o
            WHERE o.status = 'FAILED' AND o.retry_after > now() ORDER BY o.retry_after LIMIT 1),
        (SELECT o.deliver_at FROM @{schema}outbox AS o
            WHERE o.set_aside = 'later' AND o.deliver_at > now() ORDER BY o.deliver_at LIMIT 1)
    ) - now())::float8
