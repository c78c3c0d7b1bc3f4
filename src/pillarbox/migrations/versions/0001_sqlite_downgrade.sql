-- Purpose: drop the outbox, version 1, on SQLite.
-- Locks: the database's write lock.

DROP VIEW IF EXISTS outbox_live;
DROP TABLE IF EXISTS outbox;
DROP TABLE IF EXISTS outbox_settings;
DROP TABLE IF EXISTS outbox_member;
DROP TABLE IF EXISTS outbox_lease;
DROP TABLE IF EXISTS outbox_claim;
DROP TABLE IF EXISTS outbox_claim_end;
DROP TABLE IF EXISTS outbox_blocked_key;
DROP TABLE IF EXISTS outbox_control;
DROP TABLE IF EXISTS pillarbox_audit;
