-- Purpose: give the application and the projector what they need, and take away everything else.
-- Locks: none on the tables. Partitions get no grants: their rows are reached through the outbox.
REVOKE ALL ON
    @{schema}outbox, @{schema}outbox_live, @{schema}outbox_settings, @{schema}outbox_member,
    @{schema}outbox_lease, @{schema}outbox_claim, @{schema}outbox_claim_end,
    @{schema}outbox_blocked_key, @{schema}outbox_control, @{schema}outbox_audit
    FROM PUBLIC, "@{application}", "@{projector}";
REVOKE ALL ON SEQUENCE @{schema}outbox_seq FROM PUBLIC, "@{application}", "@{projector}";
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

-- The projector settles events and keeps its own books; the audit it can only add to.
GRANT SELECT, UPDATE, DELETE ON @{schema}outbox TO "@{projector}";
GRANT SELECT ON SEQUENCE @{schema}outbox_seq TO "@{projector}";
GRANT SELECT ON @{schema}outbox_live, @{schema}outbox_settings TO "@{projector}";
GRANT SELECT, INSERT, UPDATE, DELETE ON
    @{schema}outbox_member, @{schema}outbox_lease, @{schema}outbox_claim,
    @{schema}outbox_claim_end, @{schema}outbox_blocked_key, @{schema}outbox_control
    TO "@{projector}";
GRANT SELECT, INSERT ON @{schema}outbox_audit TO "@{projector}";
