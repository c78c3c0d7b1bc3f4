-- Purpose: go back to version 1: drop the inbox, the consumers' tables and the answers, on SQLite.
-- Locks: the database's write lock.

DROP TABLE IF EXISTS inbox;
DROP TABLE IF EXISTS inbox_applied;
DROP TABLE IF EXISTS inbox_attempt;
DROP TABLE IF EXISTS inbox_parked;
DROP TABLE IF EXISTS inbox_task;
DROP TABLE IF EXISTS consumer_tenant;
DROP TABLE IF EXISTS idempotency;
UPDATE outbox_settings SET schema_version = 1;
