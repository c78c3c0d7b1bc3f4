-- Purpose: find the highest number that is committed, and all other transactions that run. They are
--   looked at after the snapshot is taken: whoever has drawn a lower number is among them, or has
--   ended. A snapshot alone does not tell: it lists nobody above the last that has ended. A prepared
--   transaction has no backend.
-- Locks: none.
-- Index: ix_outbox_seq.
SELECT
    coalesce((SELECT max(o.seq) FROM @{schema}outbox AS o WHERE o.seq > 0), 0) AS newest,
    ARRAY(
        SELECT CAST(CAST(l.transactionid AS text) AS bigint) FROM pg_locks AS l
        WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted
            AND l.pid IS DISTINCT FROM pg_backend_pid()
    ) AS running
