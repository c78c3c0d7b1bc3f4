-- Purpose: end the claims that former owners of these shards left open, and tell their events.
-- Locks: none that others wait for.
-- Index: a scan of the claims, which are few: ended ones are removed soon.
WITH open AS (
    SELECT c.claim_id, c.seqs FROM @{schema}outbox_claim AS c
    WHERE c.scope = %(scope)s AND c.member_id <> %(member)s
        AND c.shards && %(shards)s::bigint[]
        AND NOT EXISTS (
            SELECT FROM @{schema}outbox_claim_end AS e WHERE e.claim_id = c.claim_id
        )
        -- A living owner still holds its first shard under the claim's epoch.
        AND NOT EXISTS (
            SELECT FROM @{schema}outbox_lease AS l
            WHERE l.scope = c.scope AND l.shard = c.shards[1] AND l.epoch = c.epochs[1]
                AND l.member_id = c.member_id AND l.expires_at > clock_timestamp()
        )
), ended AS (
    INSERT INTO @{schema}outbox_claim_end (claim_id) SELECT claim_id FROM open
    ON CONFLICT DO NOTHING
)
SELECT seqs FROM open
