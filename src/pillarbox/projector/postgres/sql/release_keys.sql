-- Purpose: bring back the next rows of locked keys, in order; forget keys that have none.
-- Locks: the rows that come back; the blocked keys are locked already.
-- Index: ix_outbox_set_aside.
-- txid tells the feed. The key stays blocked behind the last row that comes back.
WITH freed AS (
    SELECT * FROM unnest(%(tenants)s::text[], %(keys)s::text[]) AS f(tenant_id, key)
), next AS MATERIALIZED (
    SELECT f.tenant_id, f.key, row.id, row.seq FROM freed AS f
    CROSS JOIN LATERAL (
        SELECT o.id, o.seq FROM @{schema}outbox AS o
        WHERE o.tenant_id = f.tenant_id AND o.key = f.key
            AND o.set_aside IS NOT NULL AND o.set_aside = 'key'
        ORDER BY o.seq LIMIT %(chunk)s
    ) AS row
), back AS (
    UPDATE @{schema}outbox AS o SET set_aside = NULL, txid = pg_current_xact_id()
    FROM next AS n WHERE o.tenant_id = n.tenant_id AND o.id = n.id
), moved AS (
    UPDATE @{schema}outbox_blocked_key AS b
    SET event_id = last.id, seq = last.seq, topic = NULL
    FROM (
        SELECT DISTINCT ON (tenant_id, key) * FROM next ORDER BY tenant_id, key, seq DESC
    ) AS last
    WHERE b.tenant_id = last.tenant_id AND b.key = last.key
)
DELETE FROM @{schema}outbox_blocked_key AS b USING freed AS f
WHERE b.tenant_id = f.tenant_id AND b.key = f.key
    AND NOT EXISTS (SELECT FROM next AS n WHERE n.tenant_id = b.tenant_id AND n.key = b.key)
