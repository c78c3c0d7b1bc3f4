-- Purpose: read who lives, before becoming a member: who was seen lately, or holds a lease. Another's
--   lease may be longer than ours.
-- Locks: none; joining is one by one already.
SELECT m.scope, m.host, m.process_id FROM @{schema}outbox_member AS m
WHERE m.member_id <> %(member)s AND (
    m.seen_at > clock_timestamp() - make_interval(secs => %(lease)s)
    OR m.member_id IN (
        SELECT l.member_id FROM @{schema}outbox_lease AS l WHERE l.expires_at > clock_timestamp()
    )
)
