-- Purpose: go back to version 2: drop the tables of sagas, on SQLite.
-- Locks: the database's write lock.

DROP TABLE IF EXISTS saga;
DROP TABLE IF EXISTS saga_step;
DROP TABLE IF EXISTS saga_stray;
