-- Purpose: take rows of blocked keys out of the claim index; return those that were.
-- Locks: FOR KEY SHARE on the blocked keys first: a release waits, or is seen here and the row stays.
-- Index: the primary keys.
WITH blocked AS MATERIALIZED (
    SELECT b.tenant_id, b.key, b.seq FROM @{schema}outbox_blocked_key AS b
    WHERE (b.tenant_id, b.key) IN (
        SELECT * FROM unnest(%(lane_tenants)s::text[], %(lane_keys)s::text[])
    )
    FOR KEY SHARE
)
UPDATE @{schema}outbox AS o SET set_aside = 'key', status = 'NEW'
FROM unnest(%(tenants)s::text[], %(ids)s::uuid[]) AS e(tenant_id, id), blocked AS b
WHERE o.tenant_id = e.tenant_id AND o.id = e.id
    AND b.tenant_id = o.tenant_id AND b.key = o.key AND o.seq > b.seq
    AND o.status @{open} AND o.set_aside IS NULL
RETURNING o.seq
