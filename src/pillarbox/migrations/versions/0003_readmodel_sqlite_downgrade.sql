-- Purpose: go back to version 2: drop the tables of read models and the index of the log, on SQLite.
-- Locks: the database's write lock.

DROP INDEX IF EXISTS ix_outbox_seq;
DROP TABLE IF EXISTS readmodel;
DROP TABLE IF EXISTS readmodel_applied;
DROP TABLE IF EXISTS readmodel_held;
DROP TABLE IF EXISTS readmodel_member;
