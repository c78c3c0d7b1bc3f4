-- Purpose: create the tables of sagas, version 3, on SQLite.
-- Locks: the database's write lock, statement by statement; every statement may be repeated.
-- Frozen: never edit this file after a release; write the next version.

CREATE TABLE IF NOT EXISTS saga (
    due_at DATETIME,
    started_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP,
    changed_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP,
    finished_at DATETIME,
    version INTEGER NOT NULL,
    revision INTEGER NOT NULL DEFAULT 1,
    tries INTEGER NOT NULL DEFAULT 0,
    failures INTEGER NOT NULL DEFAULT 0,
    tenant_id VARCHAR(64) NOT NULL,
    saga_id VARCHAR(36) NOT NULL,
    name VARCHAR(255) NOT NULL,
    state VARCHAR(12) NOT NULL,
    step VARCHAR(100),
    part VARCHAR(4),
    cause_step VARCHAR(100),
    cause VARCHAR(10),
    wish VARCHAR(10),
    start_id VARCHAR(255) NOT NULL,
    start TEXT NOT NULL,
    steps TEXT NOT NULL,
    error_class VARCHAR(100),
    error_message TEXT,
    PRIMARY KEY (tenant_id, saga_id),
    CONSTRAINT ck_saga_state CHECK (state IN
        ('RUNNING', 'COMPENSATING', 'STUCK', 'COMPLETED', 'COMPENSATED', 'CANCELLED'))
);
-- One event starts a saga once, also when the inbox has forgotten it.
CREATE UNIQUE INDEX IF NOT EXISTS ix_saga_start ON saga (tenant_id, name, start_id);
CREATE INDEX IF NOT EXISTS ix_saga_due ON saga (name, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS ix_saga_open ON saga (name, state, saga_id) WHERE finished_at IS NULL;
CREATE INDEX IF NOT EXISTS ix_saga_finished ON saga
    (name, finished_at) WHERE finished_at IS NOT NULL;

CREATE TABLE IF NOT EXISTS saga_step (
    sent_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP,
    ended_at DATETIME,
    number SMALLINT NOT NULL,
    reply_version INTEGER,
    tenant_id VARCHAR(64) NOT NULL,
    saga_id VARCHAR(36) NOT NULL,
    step VARCHAR(100) NOT NULL,
    part VARCHAR(4) NOT NULL,
    outcome VARCHAR(10),
    reply_id VARCHAR(255),
    reply_type VARCHAR(255),
    messages TEXT NOT NULL,
    reply TEXT,
    PRIMARY KEY (tenant_id, saga_id, step, part),
    CONSTRAINT ck_saga_step_part CHECK (part IN ('do', 'undo'))
);

CREATE TABLE IF NOT EXISTS saga_stray (
    received_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP,
    tenant_id VARCHAR(64) NOT NULL,
    saga_id VARCHAR(36) NOT NULL,
    message_id VARCHAR(255) NOT NULL,
    verdict VARCHAR(8) NOT NULL,
    step VARCHAR(100),
    part VARCHAR(4),
    event_type VARCHAR(255) NOT NULL,
    PRIMARY KEY (tenant_id, saga_id, message_id)
);
