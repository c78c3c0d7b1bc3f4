-- Purpose: create the tables of read models, part of version 3, on SQLite: how far each model is,
--   what overwrote its rows last, what is held back, and what the members of subscribed models
--   tell; and the index by which the outbox is read as a log.
-- Locks: the database's write lock, statement by statement; every statement may be repeated.
-- Frozen: never edit this file after a release; write the next version.

CREATE INDEX IF NOT EXISTS ix_outbox_seq ON outbox (seq) WHERE seq > 0;

CREATE TABLE IF NOT EXISTS readmodel (
    position INTEGER NOT NULL DEFAULT 0,
    gaps TEXT NOT NULL DEFAULT '[]',
    first_position INTEGER,
    target INTEGER,
    events INTEGER NOT NULL DEFAULT 0,
    started_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP,
    moved_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP,
    name VARCHAR(255) NOT NULL,
    generation INTEGER NOT NULL,
    paused SMALLINT NOT NULL DEFAULT 0,
    source VARCHAR(8) NOT NULL,
    state VARCHAR(8) NOT NULL,
    touched TEXT NOT NULL DEFAULT '[]',
    PRIMARY KEY (name, generation),
    CONSTRAINT ck_readmodel_source CHECK (source IN ('log', 'bus')),
    CONSTRAINT ck_readmodel_state CHECK (state IN ('live', 'filling'))
);

CREATE UNIQUE INDEX IF NOT EXISTS ix_readmodel_state ON readmodel (name, state);

CREATE TABLE IF NOT EXISTS readmodel_applied (
    version INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    number INTEGER NOT NULL,
    tenant_id VARCHAR(64) NOT NULL,
    name VARCHAR(255) NOT NULL,
    aggregate_type VARCHAR(255) NOT NULL,
    aggregate_id VARCHAR(255) NOT NULL,
    PRIMARY KEY (tenant_id, name, generation, aggregate_type, aggregate_id)
);

CREATE TABLE IF NOT EXISTS readmodel_held (
    seq INTEGER NOT NULL,
    held_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP,
    due_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP,
    generation INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 1,
    event_id VARCHAR(36) NOT NULL,
    tenant_id VARCHAR(64) NOT NULL,
    name VARCHAR(255) NOT NULL,
    "key" VARCHAR(255) NOT NULL,
    error_class VARCHAR(100) NOT NULL,
    error_message TEXT NOT NULL,
    PRIMARY KEY (tenant_id, name, generation, "key")
);

CREATE TABLE IF NOT EXISTS readmodel_member (
    waiting INTEGER,
    told_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP,
    good_until DATETIME NOT NULL,
    oldest_at DATETIME,
    fresh_at DATETIME,
    generation INTEGER NOT NULL,
    in_hand INTEGER NOT NULL,
    at_end SMALLINT,
    name VARCHAR(255) NOT NULL,
    member VARCHAR(255) NOT NULL,
    PRIMARY KEY (name, generation, member)
);
