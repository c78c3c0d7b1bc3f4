-- Purpose: begin the release of keys that wait for a topic, for longest first; of the tenants that are
--   named apart not more than told for each.
-- Locks: FOR UPDATE on the blocked keys, passing over those that another holds; the server ends the
--   session of an owner that freezes with them, or nobody could settle what is behind these keys.
-- Index: ix_outbox_blocked_key_topic; the primary key for a tenant that is named apart, whose keys may be
--   few among the many that wait. coalesce() keeps that one off the other index.
WITH common AS (
    SELECT o.tenant_id, o.key, o.blocked_at FROM @{schema}outbox_blocked_key AS o
    WHERE o.topic IS NOT NULL AND o.topic = %(topic)s
        AND o.tenant_id <> ALL(%(apart)s::text[])@{tenants}
    ORDER BY o.blocked_at LIMIT %(keys)s FOR UPDATE SKIP LOCKED
), own AS (
    SELECT k.* FROM unnest(%(apart)s::text[], %(rooms)s::integer[]) AS limited(tenant_id, room)
    CROSS JOIN LATERAL (
        SELECT o.tenant_id, o.key, o.blocked_at FROM @{schema}outbox_blocked_key AS o
        WHERE o.tenant_id = limited.tenant_id AND coalesce(o.topic, '') = %(topic)s@{tenants}
        ORDER BY o.blocked_at LIMIT least(limited.room, %(keys)s) FOR UPDATE SKIP LOCKED
    ) AS k
)
SELECT tenant_id, key, set_config('idle_in_transaction_session_timeout', %(idle)s, true)
FROM (SELECT * FROM common UNION ALL SELECT * FROM own) AS waiting
ORDER BY blocked_at LIMIT %(keys)s
