-- Purpose: read the next events: what has become claimable since a snapshot, and the turns
--   (read_turns.sql), or claim it at once (read_claim.sql).
-- Locks: none.
-- Index: ix_outbox_txid for the feed, ix_outbox_claim for the turns, the primary key of the blocked
--   keys. ORDER BY txid, also over a single value, keeps the planner from any other index or a scan.
-- The first row is the header: the snapshot, whose backend this is, whether the feed fits, and whether
-- all of it is small enough. If not, there is no other row.
-- Times of rows of other hands may be infinite, or beyond the calendar of those who read them.
-- In the quick form rows stream through, and a payload above its share of the batch is left out. In
-- the sized form the rows are gathered and their bytes counted before any is sent.
WITH feed AS MATERIALIZED (
    SELECT fed.*, 0 AS turn,
        @{size} AS size
    FROM (
        SELECT fresh.* FROM (
            SELECT o.* FROM @{schema}outbox AS o
            WHERE o.status = 'NEW' AND o.set_aside IS NULL
                AND o.txid >= %(xmax)s::xid8
                AND (o.shard_hash & @{mask}) = ANY(%(shards)s::integer[])@{tenants}
            ORDER BY o.txid LIMIT %(fits)s + 1
        ) AS fresh
        UNION ALL
        SELECT late.* FROM unnest(%(xip)s::xid8[]) AS open(txid)
        CROSS JOIN LATERAL (
            SELECT o.* FROM @{schema}outbox AS o
            WHERE o.status = 'NEW' AND o.set_aside IS NULL
                AND o.txid >= open.txid AND o.txid <= open.txid
                AND (o.shard_hash & @{mask}) = ANY(%(shards)s::integer[])@{tenants}
            ORDER BY o.txid LIMIT %(fits)s + 1
        ) AS late
    ) AS fed
), header AS MATERIALIZED (
    SELECT feed.rows <= %(fits)s AND feed.bytes <= %(bytes)s AS fits,
        EXISTS (SELECT FROM @{schema}outbox_blocked_key) AS blocks
    FROM (SELECT count(*) AS rows, coalesce(sum(size), 0) AS bytes FROM feed) AS feed
), found AS @{gathered} (
    SELECT * FROM feed WHERE (SELECT fits FROM header)
    @{turns}
), batch AS MATERIALIZED (
    @{small}
)@{claim}
SELECT
    NULL::bigint, NULL::integer, pg_current_snapshot()::text, NULL::integer,
    current_setting(%(marker)s, true), NULL::text, NULL::text, @{claimed}, fits, small, NULL::float8,
    NULL::float8, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::integer, NULL::text,
    NULL::text, NULL::integer, NULL::timestamptz, NULL::json, NULL::text, NULL::json, NULL::bytea,
    NULL::boolean, NULL::boolean
FROM header, batch
UNION ALL
SELECT
    s.seq, s.shard_hash & @{mask}, s.tenant_id, s.turn, s.key, s.topic, s.id::text,
    s.retry_count, s.seq > b.seq, b.event_id = s.id,
    CASE WHEN isfinite(s.expires_at) THEN date_part('epoch', s.expires_at - now()) END,
    CASE WHEN isfinite(s.created_at) THEN date_part('epoch', now() - s.created_at) ELSE 0 END,
    s.event_type, s.aggregate_type,
    s.aggregate_id, s.aggregate_version, s.event_number, s.routing_key, s.schema_id,
    s.schema_version,
    CASE WHEN s.occurred_at >= '0001-01-02' AND s.occurred_at < '9999-12-31' THEN s.occurred_at END,
    s.event_metadata, s.content_type,
    CASE WHEN s.size <= %(share)s THEN s.payload END,
    CASE WHEN s.size <= %(share)s THEN s.payload_bytes END,
    s.size > %(share)s, coalesce(s.deliver_at, s.retry_after) IS NOT NULL
FROM found AS s
LEFT JOIN LATERAL (
    SELECT k.seq, k.event_id FROM @{schema}outbox_blocked_key AS k
    WHERE (SELECT blocks FROM header) AND k.tenant_id = s.tenant_id AND k.key = s.key
    LIMIT 1
) AS b ON true
WHERE (SELECT small FROM batch)
