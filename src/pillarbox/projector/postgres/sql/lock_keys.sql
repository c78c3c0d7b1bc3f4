-- Purpose: begin to write troubles: lock those of these keys that are blocked.
-- Locks: FOR UPDATE on the blocked keys, in the order in which operators lock them. The statements that
--   follow lock them by reason, each in this order: with two reasons each could wait for the other.
-- Index: the primary key.
SELECT FROM @{schema}outbox_blocked_key AS b
WHERE (b.tenant_id, b.key) IN (SELECT * FROM unnest(%(tenants)s::text[], %(keys)s::text[]))
ORDER BY b.tenant_id, b.key FOR UPDATE
