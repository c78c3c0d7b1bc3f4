-- Purpose: begin the release of keys that wait for a topic.
-- Locks: FOR UPDATE on the blocked keys, passing over those that another holds.
-- Index: ix_outbox_blocked_key_topic.
SELECT b.tenant_id, b.key FROM @{schema}outbox_blocked_key AS b
WHERE b.topic IS NOT NULL AND b.topic = %(topic)s
    AND b.tenant_id <> ALL(%(but)s::text[])
LIMIT %(keys)s FOR UPDATE SKIP LOCKED
