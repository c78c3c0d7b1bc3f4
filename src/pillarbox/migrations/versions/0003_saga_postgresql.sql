-- Purpose: create the tables of sagas, version 3, on PostgreSQL 15 and newer.
-- Locks: one advisory lock per database, so that two runs follow each other; the tables are new,
--   so nobody waits. On tables that exist it takes SHARE while an index is built that is missing,
--   and SHARE UPDATE EXCLUSIVE for the storage settings.
-- Frozen: never edit this file after a release; write the next version.

SELECT pg_advisory_xact_lock(7017483651);

CREATE TABLE IF NOT EXISTS @{schema}saga (
    due_at timestamptz,
    started_at timestamptz NOT NULL DEFAULT now(),
    changed_at timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz,
    version integer NOT NULL,
    revision integer NOT NULL DEFAULT 1,
    tries integer NOT NULL DEFAULT 0,
    failures integer NOT NULL DEFAULT 0,
    tenant_id varchar(64) COLLATE "C" NOT NULL,
    saga_id uuid NOT NULL,
    name varchar(255) COLLATE "C" NOT NULL,
    state varchar(12) NOT NULL,
    step varchar(100),
    part varchar(4),
    cause_step varchar(100),
    cause varchar(10),
    wish varchar(10),
    start_id varchar(255) COLLATE "C" NOT NULL,
    start json NOT NULL,
    steps json NOT NULL,
    error_class varchar(100),
    error_message text,
    PRIMARY KEY (tenant_id, saga_id),
    CONSTRAINT ck_saga_state CHECK (state IN
        ('RUNNING', 'COMPENSATING', 'STUCK', 'COMPLETED', 'COMPENSATED', 'CANCELLED'))
);
-- One event starts a saga once, also when the inbox has forgotten it.
CREATE UNIQUE INDEX IF NOT EXISTS ix_saga_start ON @{schema}saga (tenant_id, name, start_id);
CREATE INDEX IF NOT EXISTS ix_saga_due ON @{schema}saga (name, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS ix_saga_open ON @{schema}saga
    (name, state, saga_id) WHERE finished_at IS NULL;
CREATE INDEX IF NOT EXISTS ix_saga_finished ON @{schema}saga
    (name, finished_at) WHERE finished_at IS NOT NULL;

CREATE TABLE IF NOT EXISTS @{schema}saga_step (
    sent_at timestamptz NOT NULL DEFAULT now(),
    ended_at timestamptz,
    number smallint NOT NULL,
    reply_version integer,
    tenant_id varchar(64) COLLATE "C" NOT NULL,
    saga_id uuid NOT NULL,
    step varchar(100) NOT NULL,
    part varchar(4) NOT NULL,
    outcome varchar(10),
    reply_id varchar(255),
    reply_type varchar(255),
    messages json NOT NULL,
    reply json,
    PRIMARY KEY (tenant_id, saga_id, step, part),
    CONSTRAINT ck_saga_step_part CHECK (part IN ('do', 'undo'))
);

CREATE TABLE IF NOT EXISTS @{schema}saga_stray (
    received_at timestamptz NOT NULL DEFAULT now(),
    tenant_id varchar(64) COLLATE "C" NOT NULL,
    saga_id uuid NOT NULL,
    message_id varchar(255) COLLATE "C" NOT NULL,
    verdict varchar(8) NOT NULL,
    step varchar(100),
    part varchar(4),
    event_type varchar(255) NOT NULL,
    PRIMARY KEY (tenant_id, saga_id, message_id)
);

-- A row changes with each step, and its timer's index entry with it: vacuum by count.
ALTER TABLE @{schema}saga SET (fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
ALTER TABLE @{schema}saga_step SET (fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
