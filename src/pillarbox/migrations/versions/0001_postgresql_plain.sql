-- Purpose: vacuum the unpartitioned outbox early; partitions get these settings when made.
-- Locks: SHARE UPDATE EXCLUSIVE on outbox for a moment; writers go on.

ALTER TABLE @{schema}outbox SET (
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.01, autovacuum_analyze_threshold = 5000,
    autovacuum_vacuum_cost_delay = 1);
