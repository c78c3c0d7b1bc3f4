-- Purpose: create what a service needs to consume once, version 2, on PostgreSQL 15 and newer:
--   the inbox with its attempts, parked messages and tasks; the tenants of consumers; the
--   answers of HTTP commands.
-- Locks: one advisory lock per database, so that two runs follow each other; the tables are new,
--   so nobody waits. On tables that exist it takes SHARE while an index is built that is missing,
--   and SHARE UPDATE EXCLUSIVE for the storage settings.
-- Frozen: never edit this file after a release; write the next version.

SELECT pg_advisory_xact_lock(7017483651);

CREATE SEQUENCE IF NOT EXISTS @{schema}inbox_parked_seq;

-- The primary key is the claim: whoever inserts the row first has the message.
CREATE TABLE IF NOT EXISTS @{schema}inbox (
    processed_at timestamptz NOT NULL DEFAULT now(),
    tenant_id varchar(64) COLLATE "C" NOT NULL,
    consumer varchar(255) COLLATE "C" NOT NULL,
    message_id varchar(255) COLLATE "C" NOT NULL,
    event_type varchar(255) NOT NULL,
    source varchar(255),
    payload_hash varchar(64),
    payload json,
    extra_data json,
    PRIMARY KEY (tenant_id, consumer, message_id)
);
CREATE INDEX IF NOT EXISTS ix_inbox_tenant_event ON @{schema}inbox (tenant_id, event_type);
CREATE INDEX IF NOT EXISTS ix_inbox_processed_at ON @{schema}inbox (processed_at);

CREATE TABLE IF NOT EXISTS @{schema}inbox_applied (
    version bigint NOT NULL,
    number integer NOT NULL,
    tenant_id varchar(64) COLLATE "C" NOT NULL,
    consumer varchar(255) COLLATE "C" NOT NULL,
    source varchar(255) COLLATE "C" NOT NULL,
    aggregate_type varchar(255) COLLATE "C" NOT NULL,
    aggregate_id varchar(255) COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, consumer, source, aggregate_type, aggregate_id)
);

CREATE TABLE IF NOT EXISTS @{schema}inbox_attempt (
    first_at timestamptz NOT NULL DEFAULT now(),
    last_at timestamptz NOT NULL DEFAULT now(),
    started integer NOT NULL DEFAULT 0,
    failed integer NOT NULL DEFAULT 0,
    alone smallint NOT NULL DEFAULT '0',
    tenant_id varchar(64) COLLATE "C" NOT NULL,
    consumer varchar(255) COLLATE "C" NOT NULL,
    message_id varchar(255) COLLATE "C" NOT NULL,
    error_class varchar(100),
    error_message text,
    PRIMARY KEY (tenant_id, consumer, message_id)
);

CREATE TABLE IF NOT EXISTS @{schema}inbox_parked (
    seq bigint NOT NULL DEFAULT nextval('@{schema}inbox_parked_seq'::regclass),
    first_at timestamptz NOT NULL DEFAULT now(),
    last_at timestamptz NOT NULL DEFAULT now(),
    due_at timestamptz,
    attempts integer NOT NULL DEFAULT 0,
    holds_key smallint NOT NULL DEFAULT '0',
    tenant_id varchar(64) COLLATE "C" NOT NULL,
    parked_id uuid NOT NULL,
    state varchar(8) NOT NULL,
    reason varchar(32) NOT NULL,
    consumer varchar(255) COLLATE "C" NOT NULL,
    message_id varchar(255) COLLATE "C" NOT NULL,
    topic varchar(249) NOT NULL,
    key varchar(255) COLLATE "C",
    event_type varchar(255),
    source varchar(255),
    error_class varchar(100),
    error_message text,
    position text,
    headers json NOT NULL DEFAULT '{}',
    original json,
    content_type varchar(255),
    body bytea,
    PRIMARY KEY (tenant_id, parked_id),
    CONSTRAINT ck_inbox_parked_state CHECK (state IN ('waiting', 'parked'))
);
CREATE INDEX IF NOT EXISTS ix_inbox_parked_message ON @{schema}inbox_parked
    (tenant_id, consumer, message_id);
CREATE INDEX IF NOT EXISTS ix_inbox_parked_key ON @{schema}inbox_parked
    (tenant_id, consumer, key, seq) WHERE key IS NOT NULL;
CREATE INDEX IF NOT EXISTS ix_inbox_parked_due ON @{schema}inbox_parked
    (consumer, due_at) WHERE state = 'waiting';

CREATE TABLE IF NOT EXISTS @{schema}inbox_task (
    due_at timestamptz NOT NULL DEFAULT now(),
    created_at timestamptz NOT NULL DEFAULT now(),
    attempts integer NOT NULL DEFAULT 0,
    tenant_id varchar(64) COLLATE "C" NOT NULL,
    task_id uuid NOT NULL,
    consumer varchar(255) COLLATE "C" NOT NULL,
    message_id varchar(255) COLLATE "C" NOT NULL,
    name varchar(255) NOT NULL,
    arguments json NOT NULL DEFAULT '{}',
    error_class varchar(100),
    error_message text,
    PRIMARY KEY (tenant_id, task_id)
);
CREATE INDEX IF NOT EXISTS ix_inbox_task_due ON @{schema}inbox_task (consumer, due_at);

CREATE TABLE IF NOT EXISTS @{schema}consumer_tenant (
    tenant_id varchar(64) COLLATE "C" NOT NULL,
    consumer varchar(255) COLLATE "C" NOT NULL,
    kind varchar(8) NOT NULL,
    PRIMARY KEY (tenant_id, consumer, kind),
    CONSTRAINT ck_consumer_tenant_kind CHECK (kind IN ('aside', 'records'))
);

CREATE TABLE IF NOT EXISTS @{schema}idempotency (
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    lease_until timestamptz,
    status_code integer,
    token uuid,
    tenant_id varchar(64) COLLATE "C" NOT NULL,
    principal varchar(255) COLLATE "C" NOT NULL,
    operation varchar(255) COLLATE "C" NOT NULL,
    key_hash varchar(64) COLLATE "C" NOT NULL,
    fingerprint varchar(64) COLLATE "C" NOT NULL,
    state varchar(8) NOT NULL,
    headers json,
    body bytea,
    PRIMARY KEY (tenant_id, principal, operation, key_hash),
    CONSTRAINT ck_idempotency_state CHECK (state IN ('running', 'done'))
);
CREATE INDEX IF NOT EXISTS ix_idempotency_principal ON @{schema}idempotency
    (tenant_id, principal, expires_at);
CREATE INDEX IF NOT EXISTS ix_idempotency_expires_at ON @{schema}idempotency (expires_at);

-- Large tables that are added to and cleaned up: vacuum early.
ALTER TABLE @{schema}inbox SET (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.02, autovacuum_analyze_threshold = 5000);
ALTER TABLE @{schema}idempotency SET (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.02, autovacuum_analyze_threshold = 5000);
-- Tables whose rows come and go: vacuum by count, not by share; room for HOT updates.
ALTER TABLE @{schema}inbox_applied SET (fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
ALTER TABLE @{schema}inbox_attempt SET (fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
ALTER TABLE @{schema}inbox_parked SET (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
ALTER TABLE @{schema}inbox_task SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

UPDATE @{schema}outbox_settings SET schema_version = 2 WHERE schema_version < 2;
