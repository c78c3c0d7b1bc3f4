-- Purpose: begin the release of keys that wait for a topic, for longest first; of the tenants that are
--   named apart not more than told for each.
-- Locks: FOR UPDATE on the blocked keys, passing over those that another holds; the server ends the
--   session of an owner that freezes with them, or nobody could settle what is behind these keys.
-- Index: ix_outbox_blocked_key_topic; the primary key for a tenant that is named apart, whose keys may be
--   few among the many that wait. coalesce() keeps that one off the other index.
-- No index has a tenant's keys by time. So those are looked at that are among the topic's longest waiting,
-- and its first ones by name: with a hundred thousand waiting each look would else sort all of them.
WITH common AS (
    SELECT o.tenant_id, o.key, o.blocked_at FROM @{schema}outbox_blocked_key AS o
    WHERE o.topic IS NOT NULL AND o.topic = %(topic)s
        AND o.tenant_id <> ALL(%(apart)s::text[])@{tenants}
    ORDER BY o.blocked_at LIMIT %(keys)s FOR UPDATE SKIP LOCKED
), oldest AS MATERIALIZED (
    SELECT b.tenant_id, b.key, b.blocked_at FROM @{schema}outbox_blocked_key AS b
    WHERE b.topic IS NOT NULL AND b.topic = %(topic)s
    ORDER BY b.blocked_at LIMIT %(window)s
), own AS (
    SELECT k.* FROM unnest(%(apart)s::text[], %(rooms)s::integer[]) AS limited(tenant_id, room)
    CROSS JOIN LATERAL (
        SELECT held.* FROM (
            SELECT * FROM oldest AS w WHERE w.tenant_id = limited.tenant_id
            UNION
            (SELECT b.tenant_id, b.key, b.blocked_at FROM @{schema}outbox_blocked_key AS b
            WHERE b.tenant_id = limited.tenant_id AND coalesce(b.topic, '') = %(topic)s
            ORDER BY b.tenant_id, b.key LIMIT %(window)s)
            ORDER BY blocked_at
        ) AS near
        CROSS JOIN LATERAL (
            SELECT o.tenant_id, o.key, o.blocked_at FROM @{schema}outbox_blocked_key AS o
            WHERE o.tenant_id = near.tenant_id AND o.key = near.key
                AND coalesce(o.topic, '') = %(topic)s@{tenants}
            FOR UPDATE SKIP LOCKED
        ) AS held
        LIMIT least(limited.room, %(keys)s)
    ) AS k
)
SELECT tenant_id, key, set_config('idle_in_transaction_session_timeout', %(idle)s, true)
FROM (SELECT * FROM common UNION ALL SELECT * FROM own) AS waiting
ORDER BY blocked_at LIMIT %(keys)s
