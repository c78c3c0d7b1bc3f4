-- Purpose: drop the outbox, version 1.
-- Locks: ACCESS EXCLUSIVE on everything that is dropped. Roles stay: they belong to the cluster.

DROP VIEW IF EXISTS @{schema}outbox_live;
DROP TABLE IF EXISTS
    @{schema}outbox, @{schema}outbox_settings, @{schema}outbox_member, @{schema}outbox_lease,
    @{schema}outbox_claim, @{schema}outbox_claim_end, @{schema}outbox_blocked_key,
    @{schema}outbox_control, @{schema}pillarbox_audit;
DROP SEQUENCE IF EXISTS @{schema}outbox_seq;
