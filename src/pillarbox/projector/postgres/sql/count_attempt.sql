-- Purpose: count an attempt for an event that was alone in flight when its projector died.
-- Locks: the rows of the events; the leases are held already.
-- Index: the primary key.
UPDATE @{schema}outbox AS o SET retry_count = o.retry_count + 1
FROM unnest(%(tenants)s::text[], %(ids)s::uuid[], %(before)s::integer[]) AS e(tenant_id, id, before)
WHERE o.tenant_id = e.tenant_id AND o.id = e.id
    AND o.status @{open} AND o.retry_count = e.before
