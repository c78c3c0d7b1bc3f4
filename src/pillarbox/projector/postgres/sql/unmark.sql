-- Purpose: with claim="row", make NEW again what was marked and not taken.
-- Locks: the rows.
-- Index: the primary key; coalesce() keeps it off ix_tenant_id_status, which looks cheap while nothing
--   is marked.
UPDATE @{schema}outbox AS o SET status = 'NEW'
FROM unnest(%(tenants)s::text[], %(ids)s::uuid[]) AS e(tenant_id, id)
WHERE o.tenant_id = e.tenant_id AND o.id = e.id AND coalesce(o.status, '') = 'PUBLISHING'
