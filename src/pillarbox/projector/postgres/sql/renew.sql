-- Purpose: show signs of life, renew the leases that have not expired, tell who lives.
-- Locks: the member's row and its lease rows; a settling transaction of its own is not in the way,
--   because FOR KEY SHARE lets an update of other columns pass.
-- Index: the primary keys.
WITH seen AS (
    UPDATE @{schema}outbox_member SET seen_at = clock_timestamp()
    WHERE member_id = %(member)s RETURNING 1
), renewed AS (
    UPDATE @{schema}outbox_lease AS l
    SET expires_at = clock_timestamp() + make_interval(secs => %(lease)s)
    WHERE l.scope = %(scope)s AND l.member_id = %(member)s AND l.expires_at > clock_timestamp()
    RETURNING l.shard, l.epoch
)
SELECT 'member', m.member_id, NULL::integer, NULL::bigint FROM @{schema}outbox_member AS m
WHERE m.scope = %(served)s AND m.member_id <> %(member)s
    AND m.seen_at > clock_timestamp() - make_interval(secs => %(lease)s)
UNION ALL SELECT 'member', %(member)s, NULL, NULL FROM seen
UNION ALL SELECT 'lease', NULL, shard, epoch FROM renewed
