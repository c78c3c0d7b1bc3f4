-- Purpose: become a member: read who lives, under a lock that makes joining one by one.
-- Locks: an advisory lock until the transaction ends.
SELECT m.member_id, m.scope, m.host, m.process_id
FROM pg_advisory_xact_lock(7017483652) AS one_by_one, @{schema}outbox_member AS m
WHERE m.seen_at > clock_timestamp() - make_interval(secs => %(lease)s)
