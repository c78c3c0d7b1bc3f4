-- Purpose: begin the release of keys that wait for a topic.
-- Locks: FOR UPDATE on the blocked keys, passing over those that another holds.
-- Index: ix_outbox_blocked_key_topic.
SELECT o.tenant_id, o.key FROM @{schema}outbox_blocked_key AS o
WHERE o.topic IS NOT NULL AND o.topic = %(topic)s
    AND o.tenant_id <> ALL(%(but)s::text[])@{tenants}
LIMIT %(keys)s FOR UPDATE SKIP LOCKED
