-- Purpose: renew the leases that have not expired, with them show signs of life, tell who lives.
-- Locks: the member's row and its lease rows; a settling transaction of its own is not in the way,
--   because FOR KEY SHARE lets an update of other columns pass.
-- Index: the primary keys.
-- Whoever holds no lease is not seen here: it has to join, because others may have taken it for dead.
WITH renewed AS (
    UPDATE @{schema}outbox_lease AS l
    SET expires_at = clock_timestamp() + make_interval(secs => %(lease)s)
    WHERE l.scope = %(scope)s AND l.member_id = %(member)s AND l.expires_at > clock_timestamp()
    RETURNING l.shard, l.epoch
), seen AS (
    UPDATE @{schema}outbox_member AS m SET seen_at = clock_timestamp()
    WHERE m.member_id = %(member)s AND EXISTS (SELECT FROM renewed)
    RETURNING m.member_id, m.scope, m.host, m.process_id
)
SELECT 'member', m.member_id, NULL::integer, NULL::bigint, m.scope, m.host, m.process_id
FROM @{schema}outbox_member AS m
WHERE m.member_id <> %(member)s
    AND m.seen_at > clock_timestamp() - make_interval(secs => %(lease)s)
UNION ALL SELECT 'member', member_id, NULL, NULL, scope, host, process_id FROM seen
UNION ALL SELECT 'lease', NULL, shard, epoch, NULL, NULL, NULL FROM renewed
