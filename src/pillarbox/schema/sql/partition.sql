-- Purpose: make one partition of the outbox, unless it is there.
-- Locks: SHARE UPDATE EXCLUSIVE on outbox while it is attached, so that writers go on;
--   PARTITION OF would take ACCESS EXCLUSIVE. There is no default partition to be scanned.
-- With tenancy a partition carries the flags of row-level security and no policy: rows are reached
-- through the outbox alone, also when default privileges grant new tables to an application.
DO $$
BEGIN
    IF to_regclass('@{schema}@{name}') IS NULL THEN
        CREATE TABLE @{schema}@{name} (
            LIKE @{schema}outbox INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE
        ) WITH (
            autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000,
            autovacuum_vacuum_insert_scale_factor = 0.05,
            autovacuum_analyze_scale_factor = 0.01, autovacuum_analyze_threshold = 5000,
            autovacuum_vacuum_cost_delay = 1
        );
        IF (SELECT relrowsecurity FROM pg_class WHERE oid = '@{schema}outbox'::regclass) THEN
            ALTER TABLE @{schema}@{name} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
        END IF;
        ALTER TABLE @{schema}outbox ATTACH PARTITION @{schema}@{name}
            FOR VALUES FROM ('@{lower}') TO ('@{upper}');
    END IF;
END
$$;
