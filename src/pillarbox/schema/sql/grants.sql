-- Purpose: give the application and the projector what they need, and take away everything else.
-- Locks: none on the tables. Partitions get no grants: their rows are reached through the outbox.
REVOKE ALL ON
    @{schema}outbox, @{schema}outbox_live, @{schema}outbox_settings, @{schema}outbox_member,
    @{schema}outbox_lease, @{schema}outbox_claim, @{schema}outbox_claim_end,
    @{schema}outbox_blocked_key, @{schema}outbox_control, @{schema}pillarbox_audit,
    @{schema}inbox, @{schema}inbox_applied, @{schema}inbox_attempt, @{schema}inbox_parked,
    @{schema}inbox_task, @{schema}consumer_tenant, @{schema}idempotency,
    @{schema}readmodel, @{schema}readmodel_applied, @{schema}readmodel_held,
    @{schema}readmodel_member,
    @{schema}saga, @{schema}saga_step, @{schema}saga_stray
    FROM PUBLIC, "@{application}", "@{projector}";
REVOKE ALL ON SEQUENCE @{schema}outbox_seq, @{schema}inbox_parked_seq
    FROM PUBLIC, "@{application}", "@{projector}";
REVOKE CREATE ON SCHEMA "@{namespace}" FROM "@{application}", "@{projector}";
GRANT USAGE ON SCHEMA "@{namespace}" TO "@{application}", "@{projector}";

-- The application records events; ON CONFLICT and RETURNING need SELECT as well.
GRANT SELECT, INSERT ON @{schema}outbox TO "@{application}";
GRANT USAGE ON SEQUENCE @{schema}outbox_seq TO "@{application}";
-- The view runs with the rights of its reader, so the reader sees claims and leases.
GRANT SELECT ON
    @{schema}outbox_live, @{schema}outbox_settings,
    @{schema}outbox_lease, @{schema}outbox_claim, @{schema}outbox_claim_end
    TO "@{application}";
-- It consumes, and answers commands, with its own rights and inside its own tenant.
GRANT SELECT, INSERT, UPDATE, DELETE ON
    @{schema}inbox, @{schema}inbox_applied, @{schema}inbox_attempt, @{schema}inbox_parked,
    @{schema}inbox_task, @{schema}consumer_tenant, @{schema}idempotency
    TO "@{application}";
-- It keeps read models that follow a subscription.
GRANT SELECT, INSERT, UPDATE, DELETE ON
    @{schema}readmodel, @{schema}readmodel_applied, @{schema}readmodel_held,
    @{schema}readmodel_member
    TO "@{application}";
GRANT USAGE ON SEQUENCE @{schema}inbox_parked_seq TO "@{application}";
-- Sagas go on inside its own tenant too.
GRANT SELECT, INSERT, UPDATE, DELETE ON
    @{schema}saga, @{schema}saga_step, @{schema}saga_stray
    TO "@{application}";

-- The projector settles events and keeps its own books; the audit it can only add to.
GRANT SELECT, UPDATE, DELETE ON @{schema}outbox TO "@{projector}";
GRANT SELECT ON SEQUENCE @{schema}outbox_seq TO "@{projector}";
GRANT SELECT ON @{schema}outbox_live, @{schema}outbox_settings TO "@{projector}";
GRANT SELECT, INSERT, UPDATE, DELETE ON
    @{schema}outbox_member, @{schema}outbox_lease, @{schema}outbox_claim,
    @{schema}outbox_claim_end, @{schema}outbox_blocked_key, @{schema}outbox_control
    TO "@{projector}";
GRANT SELECT, INSERT ON @{schema}pillarbox_audit TO "@{projector}";
-- Operators act with its rights, also on messages that consumers have parked.
GRANT SELECT, UPDATE, DELETE ON @{schema}inbox_parked TO "@{projector}";
-- Read models that follow the log read every tenant's events, and so act with its rights too.
GRANT SELECT, INSERT, UPDATE, DELETE ON
    @{schema}readmodel, @{schema}readmodel_applied, @{schema}readmodel_held,
    @{schema}readmodel_member
    TO "@{projector}";
-- They read sagas, and say what they wish of one; the application carries it out.
GRANT SELECT, UPDATE ON @{schema}saga TO "@{projector}";
GRANT SELECT ON @{schema}saga_step, @{schema}saga_stray TO "@{projector}";
