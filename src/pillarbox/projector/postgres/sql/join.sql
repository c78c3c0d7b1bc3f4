-- Purpose: read who lives, before becoming a member.
-- Locks: none; joining is one by one already.
SELECT m.member_id, m.scope, m.host, m.process_id FROM @{schema}outbox_member AS m
WHERE m.seen_at > clock_timestamp() - make_interval(secs => %(lease)s)
