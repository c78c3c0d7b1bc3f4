-- Purpose: shut the direct way into the partitions that exist; new ones are born so.
-- Locks: ACCESS EXCLUSIVE on each partition for a moment.
DO $$
DECLARE
    part regclass;
BEGIN
    FOR part IN SELECT inhrelid FROM pg_inherits
        WHERE inhparent = '@{schema}outbox'::regclass
    LOOP
        EXECUTE 'ALTER TABLE ' || part || ' ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY';
    END LOOP;
END
$$;
