-- Purpose: make claimable what has become due, of each tenant in turn; tell whether there is more, and
--   when the next event is due.
-- Locks: the rows that become due, passing over those that another holds.
-- Index: ix_outbox_processing and ix_outbox_due, from either end; then the primary key.
-- Of much that is due a window is looked at: what is due for longest, and what has become due just now,
-- which another tenant's million before it does not hide.
-- Where the first end is all that is due, the other one is not looked at.
WITH failed AS MATERIALIZED (
    SELECT o.tenant_id, o.id, o.retry_after AS at FROM @{schema}outbox AS o
    WHERE o.status = 'FAILED' AND o.retry_after <= now()
        AND (o.shard_hash & @{mask}) = ANY(%(shards)s::integer[])
    ORDER BY o.retry_after LIMIT %(window)s
), later AS MATERIALIZED (
    SELECT o.tenant_id, o.id, o.deliver_at AS at FROM @{schema}outbox AS o
    WHERE o.set_aside = 'later' AND o.deliver_at <= now()
        AND (o.shard_hash & @{mask}) = ANY(%(shards)s::integer[])
    ORDER BY o.deliver_at LIMIT %(window)s
), due AS (
    SELECT * FROM failed
    UNION
    (SELECT o.tenant_id, o.id, o.retry_after FROM @{schema}outbox AS o
    WHERE (SELECT count(*) FROM failed) = %(window)s
        AND o.status = 'FAILED' AND o.retry_after <= now()
        AND (o.shard_hash & @{mask}) = ANY(%(shards)s::integer[])
    ORDER BY o.retry_after DESC LIMIT %(window)s)
    UNION
    SELECT * FROM later
    UNION
    (SELECT o.tenant_id, o.id, o.deliver_at FROM @{schema}outbox AS o
    WHERE (SELECT count(*) FROM later) = %(window)s
        AND o.set_aside = 'later' AND o.deliver_at <= now()
        AND (o.shard_hash & @{mask}) = ANY(%(shards)s::integer[])
    ORDER BY o.deliver_at DESC LIMIT %(window)s)
), chosen AS MATERIALIZED (
    SELECT tenant_id, id FROM (
        SELECT due.*, row_number() OVER (PARTITION BY tenant_id ORDER BY at) AS turn FROM due
    ) AS turns
    ORDER BY turn, at LIMIT %(limit)s
), locked AS (
    SELECT o.tenant_id, o.id FROM chosen AS c
    JOIN @{schema}outbox AS o ON o.tenant_id = c.tenant_id AND o.id = c.id
    WHERE o.status = 'FAILED' AND o.retry_after <= now()
        OR o.set_aside = 'later' AND o.deliver_at <= now()
    FOR UPDATE OF o SKIP LOCKED
), back AS (
    UPDATE @{schema}outbox AS o
    SET status = 'NEW', set_aside = NULL, txid = pg_current_xact_id()
    FROM locked WHERE o.tenant_id = locked.tenant_id AND o.id = locked.id
    RETURNING 1
)
SELECT
    (SELECT count(*) FROM back),
    (SELECT count(*) FROM chosen) = %(limit)s,
    extract(epoch FROM least(
        (SELECT o.retry_after FROM @{schema}outbox AS o
            WHERE o.status = 'FAILED' AND o.retry_after > now() AND o.retry_after < 'infinity'
            ORDER BY o.retry_after LIMIT 1),
        (SELECT o.deliver_at FROM @{schema}outbox AS o
            WHERE o.set_aside = 'later' AND o.deliver_at > now() AND o.deliver_at < 'infinity'
            ORDER BY o.deliver_at LIMIT 1)
    ) - now())::float8
