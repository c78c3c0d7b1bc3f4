-- Purpose: begin a release: lock the keys that these events block.
-- Locks: FOR UPDATE on the blocked keys; whoever sets rows aside behind them is waited for, and the
--   next statement sees what it did. In one order, as set_aside.sql.
-- Index: the primary key.
SELECT b.tenant_id, b.key FROM @{schema}outbox_blocked_key AS b
JOIN unnest(%(tenants)s::text[], %(keys)s::text[], %(ids)s::uuid[]) AS e(tenant_id, key, id)
    ON b.tenant_id = e.tenant_id AND b.key = e.key AND b.event_id = e.id
ORDER BY b.tenant_id, b.key FOR UPDATE OF b
