-- Purpose: read the log from a number to the newest of `horizon.sql`, and what has appeared in the
--   gaps below it; and the snapshot in which both were seen. It must be one statement: a snapshot of
--   another one could have seen a transaction end that this one did not see.
-- Locks: none.
-- Index: ix_outbox_seq.
-- Of the rows in gaps, the lowest: a late transaction may have written any number of them.
-- Without a row there is one of NULLs with the snapshot. Contents of other types are left out.
SELECT
    h.snapshot, o.seq, o.tenant_id, o.id, o.key, o.event_type, o.topic, o.aggregate_type,
    o.aggregate_id, o.aggregate_version, o.event_number, o.routing_key, o.schema_id,
    o.schema_version, o.occurred_at, o.event_metadata, o.content_type,
    CASE WHEN o.event_type = ANY(CAST(:types AS text[])) THEN CAST(o.payload AS text) END AS payload,
    CASE WHEN o.event_type = ANY(CAST(:types AS text[])) THEN o.payload_bytes END AS payload_bytes
FROM (SELECT CAST(pg_current_snapshot() AS text) AS snapshot) AS h
LEFT JOIN LATERAL (
    (
        SELECT f.* FROM @{schema}outbox AS f
        WHERE f.seq > 0 AND f.seq > :number AND f.seq <= :newest ORDER BY f.seq LIMIT :most
    )
    UNION ALL
    (
        SELECT l.*
        FROM unnest(CAST(:lows AS bigint[]), CAST(:highs AS bigint[])) AS gap(low, high)
        CROSS JOIN LATERAL (
            SELECT g.* FROM @{schema}outbox AS g
            WHERE g.seq > 0 AND g.seq BETWEEN gap.low AND gap.high ORDER BY g.seq LIMIT :most
        ) AS l
        ORDER BY l.seq LIMIT :most
    )
) AS o ON true
ORDER BY o.seq
