-- Purpose: create the tables of read models, part of version 3, on PostgreSQL 15 and newer: how far
--   each model is, what overwrote its rows last, what is held back, and what the members of
--   subscribed models tell; and the index by which the outbox is read as a log.
-- Locks: one advisory lock per database, so that two runs follow each other; SHARE on the outbox
--   while the index is built. Where that takes too long, create it CONCURRENTLY beforehand.
-- Frozen: never edit this file after a release; write the next version.

SELECT pg_advisory_xact_lock(7017483651);

-- All rows: read models follow the log at their own pace, past those that are SENT. The condition
-- keeps claims, which also go by number, from being planned with this index.
CREATE INDEX IF NOT EXISTS ix_outbox_seq ON @{schema}outbox (seq) WHERE seq > 0;

CREATE TABLE IF NOT EXISTS @{schema}readmodel (
    position bigint NOT NULL DEFAULT '0',
    gaps json NOT NULL DEFAULT '[]',
    first_position bigint,
    target bigint,
    events bigint NOT NULL DEFAULT '0',
    started_at timestamptz NOT NULL DEFAULT now(),
    moved_at timestamptz NOT NULL DEFAULT now(),
    name varchar(255) COLLATE "C" NOT NULL,
    generation integer NOT NULL,
    paused smallint NOT NULL DEFAULT '0',
    source varchar(8) NOT NULL,
    state varchar(8) NOT NULL,
    touched json NOT NULL DEFAULT '[]',
    PRIMARY KEY (name, generation),
    CONSTRAINT ck_readmodel_source CHECK (source IN ('log', 'bus')),
    CONSTRAINT ck_readmodel_state CHECK (state IN ('live', 'filling'))
);

CREATE UNIQUE INDEX IF NOT EXISTS ix_readmodel_state ON @{schema}readmodel (name, state);

CREATE TABLE IF NOT EXISTS @{schema}readmodel_applied (
    version bigint NOT NULL,
    generation integer NOT NULL,
    number integer NOT NULL,
    tenant_id varchar(64) COLLATE "C" NOT NULL,
    name varchar(255) COLLATE "C" NOT NULL,
    aggregate_type varchar(255) COLLATE "C" NOT NULL,
    aggregate_id varchar(255) COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, name, generation, aggregate_type, aggregate_id)
);

CREATE TABLE IF NOT EXISTS @{schema}readmodel_held (
    seq bigint NOT NULL,
    held_at timestamptz NOT NULL DEFAULT now(),
    due_at timestamptz NOT NULL DEFAULT now(),
    generation integer NOT NULL,
    attempts integer NOT NULL DEFAULT 1,
    event_id uuid NOT NULL,
    tenant_id varchar(64) COLLATE "C" NOT NULL,
    name varchar(255) COLLATE "C" NOT NULL,
    key varchar(255) COLLATE "C" NOT NULL,
    error_class varchar(100) NOT NULL,
    error_message text NOT NULL,
    PRIMARY KEY (tenant_id, name, generation, key)
);

CREATE TABLE IF NOT EXISTS @{schema}readmodel_member (
    waiting bigint,
    told_at timestamptz NOT NULL DEFAULT now(),
    good_until timestamptz NOT NULL,
    oldest_at timestamptz,
    fresh_at timestamptz,
    generation integer NOT NULL,
    in_hand integer NOT NULL,
    at_end smallint,
    name varchar(255) COLLATE "C" NOT NULL,
    member varchar(255) COLLATE "C" NOT NULL,
    PRIMARY KEY (name, generation, member)
);

-- Tables whose rows are written again and again: vacuum by count, room for HOT updates.
ALTER TABLE @{schema}readmodel SET (fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
ALTER TABLE @{schema}readmodel_member SET (fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
ALTER TABLE @{schema}readmodel_applied SET (fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
