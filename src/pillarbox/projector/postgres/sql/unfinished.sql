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
        -- A living owner still holds one of its shards under the claim's epoch; others it may have
        -- handed over since.
        AND NOT EXISTS (
            SELECT FROM unnest(c.shards, c.epochs) AS mine(shard, epoch)
            JOIN @{schema}outbox_lease AS l ON l.scope = c.scope AND l.shard = mine.shard
                AND l.epoch = mine.epoch AND l.member_id = c.member_id
            WHERE l.expires_at > clock_timestamp()
        )
), ended AS (
    INSERT INTO @{schema}outbox_claim_end (claim_id) SELECT claim_id FROM open
    ON CONFLICT DO NOTHING
)
SELECT seqs FROM open
