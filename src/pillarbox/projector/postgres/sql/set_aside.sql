-- Purpose: take rows of blocked keys out of the claim index; return those that were.
-- Locks: FOR KEY SHARE on the blocked keys first: a release waits, or is seen here and the row stays.
--   In one order, as all who lock several do; lock_keys.sql has locked them already. Then the rows.
-- Index: the primary keys. coalesce() keeps the outbox off the indexes of what can be claimed, which look
--   cheap where little could be when the statement was planned: each event would then read all of it.
WITH blocked AS MATERIALIZED (
    SELECT b.tenant_id, b.key, b.seq FROM @{schema}outbox_blocked_key AS b
    WHERE (b.tenant_id, b.key) IN (
        SELECT * FROM unnest(%(lane_tenants)s::text[], %(lane_keys)s::text[])
    )
    ORDER BY b.tenant_id, b.key FOR KEY SHARE
)
UPDATE @{schema}outbox AS o SET set_aside = 'key', status = 'NEW'
FROM unnest(%(tenants)s::text[], %(ids)s::uuid[], %(keys)s::text[]) AS e(tenant_id, id, key)
JOIN blocked AS b ON b.tenant_id = e.tenant_id AND b.key = e.key
WHERE o.tenant_id = e.tenant_id AND o.id = e.id AND o.seq > b.seq
    AND o.status @{open} AND coalesce(o.set_aside, '') = ''
RETURNING o.seq
