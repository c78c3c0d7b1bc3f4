-- Purpose: remove claims that ended, claims of this member that it does not know, and members that
--   are long gone and hold no lease.
-- Locks: the rows that go.
-- Index: the primary keys.
WITH ended AS (
    DELETE FROM @{schema}outbox_claim_end AS e
    WHERE e.ended_at < now() - make_interval(secs => %(lease)s) RETURNING e.claim_id
), gone AS (
    DELETE FROM @{schema}outbox_member AS m
    WHERE m.seen_at < now() - make_interval(secs => 10 * %(lease)s) AND m.member_id NOT IN (
        SELECT l.member_id FROM @{schema}outbox_lease AS l
        WHERE l.member_id IS NOT NULL AND l.expires_at > now()
    )
)
DELETE FROM @{schema}outbox_claim AS c
WHERE c.claim_id IN (SELECT claim_id FROM ended)
    OR (c.member_id = %(member)s AND c.claimed_at < now() - make_interval(secs => 2 * %(lease)s)
        AND c.claim_id <> ALL(%(active)s::uuid[]))
