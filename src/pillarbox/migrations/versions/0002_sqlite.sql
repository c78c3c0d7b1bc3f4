-- Purpose: create what a service needs to consume once, version 2, on SQLite: the inbox with its
--   attempts, parked messages and tasks; the tenants of consumers; the answers of HTTP
--   commands.
-- Locks: the database's write lock, statement by statement; every statement may be repeated.
-- Frozen: never edit this file after a release; write the next version.

-- The primary key is the claim: whoever inserts the row first has the message.
CREATE TABLE IF NOT EXISTS inbox (
    processed_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP,
    tenant_id VARCHAR(64) NOT NULL,
    consumer VARCHAR(255) NOT NULL,
    message_id VARCHAR(255) NOT NULL,
    event_type VARCHAR(255) NOT NULL,
    source VARCHAR(255),
    payload_hash VARCHAR(64),
    payload TEXT,
    extra_data TEXT,
    PRIMARY KEY (tenant_id, consumer, message_id)
);
CREATE INDEX IF NOT EXISTS ix_inbox_tenant_event ON inbox (tenant_id, event_type);
CREATE INDEX IF NOT EXISTS ix_inbox_processed_at ON inbox (processed_at);

CREATE TABLE IF NOT EXISTS inbox_applied (
    version INTEGER NOT NULL,
    number INTEGER NOT NULL,
    tenant_id VARCHAR(64) NOT NULL,
    consumer VARCHAR(255) NOT NULL,
    source VARCHAR(255) NOT NULL,
    aggregate_type VARCHAR(255) NOT NULL,
    aggregate_id VARCHAR(255) NOT NULL,
    PRIMARY KEY (tenant_id, consumer, source, aggregate_type, aggregate_id)
);

CREATE TABLE IF NOT EXISTS inbox_attempt (
    first_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP,
    last_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP,
    started INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    alone SMALLINT NOT NULL DEFAULT 0,
    tenant_id VARCHAR(64) NOT NULL,
    consumer VARCHAR(255) NOT NULL,
    message_id VARCHAR(255) NOT NULL,
    error_class VARCHAR(100),
    error_message TEXT,
    PRIMARY KEY (tenant_id, consumer, message_id)
);

-- seq has no default: the writer draws it from outbox_settings.last_seq in its transaction.
CREATE TABLE IF NOT EXISTS inbox_parked (
    seq INTEGER NOT NULL,
    first_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP,
    last_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP,
    due_at DATETIME,
    attempts INTEGER NOT NULL DEFAULT 0,
    holds_key SMALLINT NOT NULL DEFAULT 0,
    tenant_id VARCHAR(64) NOT NULL,
    parked_id VARCHAR(36) NOT NULL,
    state VARCHAR(8) NOT NULL,
    reason VARCHAR(32) NOT NULL,
    consumer VARCHAR(255) NOT NULL,
    message_id VARCHAR(255) NOT NULL,
    topic VARCHAR(249) NOT NULL,
    "key" VARCHAR(255),
    event_type VARCHAR(255),
    source VARCHAR(255),
    error_class VARCHAR(100),
    error_message TEXT,
    position TEXT,
    headers TEXT NOT NULL DEFAULT '{}',
    original TEXT,
    content_type VARCHAR(255),
    body BLOB,
    PRIMARY KEY (tenant_id, parked_id),
    CONSTRAINT ck_inbox_parked_state CHECK (state IN ('waiting', 'parked'))
);
CREATE INDEX IF NOT EXISTS ix_inbox_parked_message ON inbox_parked
    (tenant_id, consumer, message_id);
CREATE INDEX IF NOT EXISTS ix_inbox_parked_key ON inbox_parked
    (tenant_id, consumer, "key", seq) WHERE key IS NOT NULL;
CREATE INDEX IF NOT EXISTS ix_inbox_parked_due ON inbox_parked
    (consumer, due_at) WHERE state = 'waiting';

CREATE TABLE IF NOT EXISTS inbox_task (
    due_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP,
    created_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP,
    attempts INTEGER NOT NULL DEFAULT 0,
    tenant_id VARCHAR(64) NOT NULL,
    task_id VARCHAR(36) NOT NULL,
    consumer VARCHAR(255) NOT NULL,
    message_id VARCHAR(255) NOT NULL,
    name VARCHAR(255) NOT NULL,
    arguments TEXT NOT NULL DEFAULT '{}',
    error_class VARCHAR(100),
    error_message TEXT,
    PRIMARY KEY (tenant_id, task_id)
);
CREATE INDEX IF NOT EXISTS ix_inbox_task_due ON inbox_task (consumer, due_at);

CREATE TABLE IF NOT EXISTS consumer_tenant (
    tenant_id VARCHAR(64) NOT NULL,
    consumer VARCHAR(255) NOT NULL,
    kind VARCHAR(8) NOT NULL,
    PRIMARY KEY (tenant_id, consumer, kind),
    CONSTRAINT ck_consumer_tenant_kind CHECK (kind IN ('aside', 'records'))
);

CREATE TABLE IF NOT EXISTS idempotency (
    created_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP,
    expires_at DATETIME NOT NULL,
    lease_until DATETIME,
    status_code INTEGER,
    token VARCHAR(36),
    tenant_id VARCHAR(64) NOT NULL,
    principal VARCHAR(255) NOT NULL,
    operation VARCHAR(255) NOT NULL,
    key_hash VARCHAR(64) NOT NULL,
    fingerprint VARCHAR(64) NOT NULL,
    state VARCHAR(8) NOT NULL,
    headers TEXT,
    body BLOB,
    PRIMARY KEY (tenant_id, principal, operation, key_hash),
    CONSTRAINT ck_idempotency_state CHECK (state IN ('running', 'done'))
);
CREATE INDEX IF NOT EXISTS ix_idempotency_principal ON idempotency
    (tenant_id, principal, expires_at);
CREATE INDEX IF NOT EXISTS ix_idempotency_expires_at ON idempotency (expires_at);

UPDATE outbox_settings SET schema_version = 2 WHERE schema_version < 2;
