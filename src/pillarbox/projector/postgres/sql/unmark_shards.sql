-- Purpose: with claim="row", make NEW again what a former owner of these shards left PUBLISHING.
-- Locks: the rows.
-- Index: ix_tenant_id_status.
UPDATE @{schema}outbox AS o SET status = 'NEW'
WHERE o.status = 'PUBLISHING' AND (o.shard_hash & @{mask}) = ANY(%(shards)s::integer[])@{tenants}
