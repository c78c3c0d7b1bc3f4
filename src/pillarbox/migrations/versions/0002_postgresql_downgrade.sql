-- Purpose: go back to version 1: drop the inbox, the consumers' tables and the answers.
-- Locks: ACCESS EXCLUSIVE on everything that is dropped.

DROP TABLE IF EXISTS
    @{schema}inbox, @{schema}inbox_applied, @{schema}inbox_attempt, @{schema}inbox_parked,
    @{schema}inbox_task, @{schema}consumer_tenant, @{schema}idempotency;
DROP SEQUENCE IF EXISTS @{schema}inbox_parked_seq;
UPDATE @{schema}outbox_settings SET schema_version = 1;
