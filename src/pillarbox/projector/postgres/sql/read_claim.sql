-- Purpose: the part of read.sql that claims what is new in the same statement, where nothing waits
--   behind it: a round trip less for the events that should be quick.
-- Locks: none that others wait for.
-- Index: the primary key of the leases.
-- As in claim.sql its commit makes durable whatever it saw. What the reader would not take it must
-- not claim either.
, taken AS MATERIALIZED (
    SELECT f.seq, f.shard_hash & @{mask} AS shard FROM feed AS f
    WHERE (SELECT fits FROM header) AND current_setting(%(marker)s, true) IS NOT NULL
        AND NOT EXISTS (SELECT FROM feed WHERE size > %(share)s)
        AND f.seq <> ALL(%(in_hand)s::bigint[]) AND f.tenant_id <> ALL(%(passed_over)s::text[])
), held AS MATERIALIZED (
    SELECT count(*) = count(l.shard) AS ok
    FROM (SELECT DISTINCT shard FROM taken) AS needed
    LEFT JOIN @{schema}outbox_lease AS l
        ON l.scope = %(scope)s AND l.shard = needed.shard AND l.member_id = %(member)s
        AND l.epoch = (%(epochs)s::bigint[])[array_position(%(shards)s::integer[], needed.shard)]
), claimed AS (
    INSERT INTO @{schema}outbox_claim (claim_id, member_id, scope, shards, epochs, seqs)
    SELECT %(claim)s, %(member)s, %(scope)s, %(shards)s::bigint[], %(epochs)s::bigint[],
        array_agg(taken.seq)
    FROM taken, set_config('synchronous_commit', 'on', true) AS durable
    WHERE (SELECT ok FROM held) AND durable = 'on'
    HAVING count(*) > 0
    RETURNING claim_id
)
