-- Purpose: write FAILED or DEAD with the reason, if status and attempt are as expected.
-- Locks: the rows of the events; the leases are held already.
-- Index: the primary key.
UPDATE @{schema}outbox AS o
SET status = CASE WHEN e.delay IS NULL THEN 'DEAD' ELSE 'FAILED' END,
    retry_count = e.attempts,
    retry_after = now() + make_interval(secs => e.delay),
    error_class = e.error_class, error_message = e.error_message
FROM unnest(
    %(tenants)s::text[], %(ids)s::uuid[], %(before)s::integer[], %(attempts)s::integer[],
    %(delays)s::float8[], %(classes)s::text[], %(messages)s::text[]
) AS e(tenant_id, id, before, attempts, delay, error_class, error_message)
WHERE o.tenant_id = e.tenant_id AND o.id = e.id
    AND o.status @{open} AND o.retry_count = e.before
RETURNING o.id::text
