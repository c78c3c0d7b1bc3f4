-- Purpose: name the topics that keys wait for.
-- Locks: none.
-- Index: ix_outbox_blocked_key_topic, one probe for each topic.
WITH RECURSIVE waiting AS (
    (
        SELECT topic FROM @{schema}outbox_blocked_key
        WHERE topic IS NOT NULL ORDER BY topic LIMIT 1
    )
    UNION ALL
    SELECT next.topic FROM waiting AS w
    CROSS JOIN LATERAL (
        SELECT b.topic FROM @{schema}outbox_blocked_key AS b
        WHERE b.topic IS NOT NULL AND b.topic > w.topic ORDER BY b.topic LIMIT 1
    ) AS next
)
SELECT topic FROM waiting
