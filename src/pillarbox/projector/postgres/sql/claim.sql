-- Purpose: record the claim on events that were read, if the leases of their shards are held.
-- Locks: none that others wait for.
-- Index: the primary key of the leases.
-- Its commit makes durable whatever the read saw: it sets synchronous_commit itself, and its WAL
-- record follows those of the commits that were seen. Nothing is sent before it has returned.
WITH held AS MATERIALIZED (
    SELECT count(*) = cardinality(%(needed_shards)s::integer[]) AS ok
    FROM unnest(%(needed_shards)s::integer[], %(needed_epochs)s::bigint[]) AS mine(shard, epoch)
    JOIN @{schema}outbox_lease AS l
        ON l.scope = %(scope)s AND l.shard = mine.shard AND l.epoch = mine.epoch
        AND l.member_id = %(member)s
), claimed AS (
    INSERT INTO @{schema}outbox_claim (claim_id, member_id, scope, shards, epochs, seqs)
    SELECT %(claim)s, %(member)s, %(scope)s, %(shards)s::bigint[], %(epochs)s::bigint[],
        %(seqs)s::bigint[]
    FROM held, set_config('synchronous_commit', 'on', true) AS durable
    WHERE held.ok AND durable = 'on'
    RETURNING claim_id
)@{mark}
SELECT count(*) FROM claimed
