-- Purpose: go back to version 2: drop the tables of sagas.
-- Locks: ACCESS EXCLUSIVE on everything that is dropped.

DROP TABLE IF EXISTS @{schema}saga, @{schema}saga_step, @{schema}saga_stray;
