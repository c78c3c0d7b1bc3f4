-- Purpose: go back to version 2: drop the tables of read models and the index of the log.
-- Locks: ACCESS EXCLUSIVE on everything that is dropped, and on the outbox for a moment.

DROP INDEX IF EXISTS @{schema}ix_outbox_seq;
DROP TABLE IF EXISTS @{schema}readmodel, @{schema}readmodel_applied, @{schema}readmodel_held,
    @{schema}readmodel_member;
