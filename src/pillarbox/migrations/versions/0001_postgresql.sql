-- Purpose: create the outbox, version 1, on PostgreSQL 15 and newer.
-- Locks: one advisory lock per database, so that two runs follow each other; the tables are new,
--   so nobody waits. On tables that exist it takes SHARE while an index is built that is missing,
--   SHARE UPDATE EXCLUSIVE for the storage settings and ACCESS EXCLUSIVE on the view alone.
-- Frozen: never edit this file after a release; write the next version.

SELECT pg_advisory_xact_lock(7017483651);

CREATE SEQUENCE IF NOT EXISTS @{schema}outbox_seq;

-- txid stands before seq: defaults are evaluated in column order, and the projector relies on a
-- row's transaction id being drawn before its number. No identity: partitions lack it before 17.
CREATE TABLE IF NOT EXISTS @{schema}outbox (
    txid xid8 DEFAULT pg_current_xact_id(),
    seq bigint NOT NULL DEFAULT nextval('@{schema}outbox_seq'::regclass),
    occurred_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    deliver_at timestamptz,
    expires_at timestamptz,
    retry_after timestamptz,
    published_at timestamptz,
    aggregate_version bigint,
    event_number integer,
    shard_hash integer NOT NULL,
    schema_version integer NOT NULL DEFAULT 1,
    retry_count integer NOT NULL DEFAULT 0,
    id uuid NOT NULL,
    tenant_id varchar(64) COLLATE "C" NOT NULL DEFAULT 'default',
    status varchar(10) NOT NULL DEFAULT 'NEW',
    set_aside varchar(8),
    event_type varchar(255) NOT NULL,
    topic varchar(249) NOT NULL,
    key varchar(255) COLLATE "C" NOT NULL,
    aggregate_type varchar(255),
    aggregate_id varchar(255),
    routing_key varchar(255),
    schema_id varchar(255),
    error_class varchar(100),
    error_message text,
    event_metadata json NOT NULL DEFAULT '{}',
    content_type varchar(255) NOT NULL DEFAULT 'application/json',
    payload json,
    payload_bytes bytea,
    CONSTRAINT pk_outbox PRIMARY KEY (tenant_id, id),
    CONSTRAINT ck_outbox_status
        CHECK (status IN ('NEW', 'PUBLISHING', 'SENT', 'FAILED', 'DEAD')),
    CONSTRAINT ck_outbox_set_aside CHECK (set_aside IN ('key', 'later')),
    CONSTRAINT ck_outbox_one_payload CHECK (payload IS NULL OR payload_bytes IS NULL)
)@{partition_by};

-- Every index is partial: a SENT row stands in none of them but the primary key.
CREATE INDEX IF NOT EXISTS ix_outbox_claim ON @{schema}outbox
    ((shard_hash & @{mask}), tenant_id, seq) WHERE status = 'NEW' AND set_aside IS NULL;
CREATE INDEX IF NOT EXISTS ix_outbox_txid ON @{schema}outbox
    (txid) WHERE status = 'NEW' AND set_aside IS NULL;
CREATE INDEX IF NOT EXISTS ix_outbox_set_aside ON @{schema}outbox
    (tenant_id, key, seq) WHERE set_aside IS NOT NULL;
CREATE INDEX IF NOT EXISTS ix_outbox_due ON @{schema}outbox
    (deliver_at) WHERE set_aside = 'later';
CREATE INDEX IF NOT EXISTS ix_outbox_processing ON @{schema}outbox
    (status, retry_after) WHERE status = 'FAILED';
CREATE INDEX IF NOT EXISTS ix_tenant_id_status ON @{schema}outbox
    (tenant_id, status) WHERE status IN ('PUBLISHING', 'FAILED', 'DEAD');
CREATE INDEX IF NOT EXISTS ix_outbox_topic ON @{schema}outbox
    (topic) WHERE status IN ('FAILED', 'DEAD');

CREATE TABLE IF NOT EXISTS @{schema}outbox_settings (
    id smallint NOT NULL DEFAULT '1',
    schema_version integer NOT NULL,
    shard_count integer NOT NULL DEFAULT 64,
    shard_hash varchar(32) NOT NULL DEFAULT 'sha256-16',
    layout varchar(11) NOT NULL DEFAULT 'plain',
    last_seq bigint NOT NULL DEFAULT '0',
    PRIMARY KEY (id),
    CONSTRAINT ck_outbox_settings_one_row CHECK (id = 1),
    CONSTRAINT ck_outbox_settings_shard_count CHECK (
        shard_count BETWEEN 1 AND 1024 AND (shard_count & (shard_count - 1)) = 0
    ),
    CONSTRAINT ck_outbox_settings_layout CHECK (layout IN ('plain', 'partitioned'))
);

CREATE TABLE IF NOT EXISTS @{schema}outbox_member (
    member_id uuid NOT NULL,
    scope text NOT NULL,
    service varchar(255) NOT NULL,
    host varchar(255) NOT NULL,
    process_id integer NOT NULL,
    version varchar(32) NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    seen_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (member_id)
);

CREATE TABLE IF NOT EXISTS @{schema}outbox_lease (
    scope varchar(255) NOT NULL,
    shard integer NOT NULL,
    member_id uuid,
    epoch bigint NOT NULL DEFAULT '0',
    expires_at timestamptz,
    PRIMARY KEY (scope, shard)
);

CREATE TABLE IF NOT EXISTS @{schema}outbox_claim (
    claim_id uuid NOT NULL,
    member_id uuid NOT NULL,
    claimed_at timestamptz NOT NULL DEFAULT now(),
    scope varchar(255) NOT NULL,
    shards bigint[] NOT NULL,
    epochs bigint[] NOT NULL,
    seqs bigint[] NOT NULL,
    PRIMARY KEY (claim_id)
);

CREATE TABLE IF NOT EXISTS @{schema}outbox_claim_end (
    claim_id uuid NOT NULL,
    ended_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (claim_id)
);

CREATE TABLE IF NOT EXISTS @{schema}outbox_blocked_key (
    tenant_id varchar(64) COLLATE "C" NOT NULL,
    key varchar(255) COLLATE "C" NOT NULL,
    event_id uuid NOT NULL,
    seq bigint NOT NULL,
    blocked_at timestamptz NOT NULL DEFAULT now(),
    topic varchar(249),
    PRIMARY KEY (tenant_id, key)
);
CREATE INDEX IF NOT EXISTS ix_outbox_blocked_key_topic ON @{schema}outbox_blocked_key
    (topic, blocked_at) WHERE topic IS NOT NULL;

CREATE TABLE IF NOT EXISTS @{schema}outbox_control (
    tenant_id varchar(64) COLLATE "C" NOT NULL,
    topic varchar(249) NOT NULL,
    paused smallint NOT NULL DEFAULT '0',
    events_per_second integer,
    changed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, topic)
);

CREATE TABLE IF NOT EXISTS @{schema}pillarbox_audit (
    tenant_id varchar(64) COLLATE "C" NOT NULL,
    audit_id uuid NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    actor varchar(255) NOT NULL,
    action varchar(32) NOT NULL,
    reason text NOT NULL,
    subject json NOT NULL,
    affected bigint NOT NULL,
    PRIMARY KEY (tenant_id, audit_id)
);

-- Rows by live status. One branch per status, so that a condition on status reads only the
-- branches that can answer it, each by its partial index; SENT rows are read when asked for.
-- A claim is open while it has no end and one of its shards' leases is still the claimant's.
CREATE OR REPLACE VIEW @{schema}outbox_live WITH (security_invoker = true) AS
SELECT
    id, tenant_id, live_status AS status, set_aside, seq, event_type, topic, key,
    aggregate_type, aggregate_id, aggregate_version, event_number, routing_key,
    schema_id, schema_version, occurred_at, created_at, deliver_at, expires_at, published_at,
    retry_count, retry_after, error_class, error_message, event_metadata, content_type,
    payload, payload_bytes
FROM (
    SELECT (CASE WHEN o.seq IN (
        SELECT unnest(c.seqs)
        FROM @{schema}outbox_claim c
        WHERE EXISTS (
            SELECT FROM unnest(c.shards, c.epochs) AS mine(shard, epoch)
            JOIN @{schema}outbox_lease l ON l.scope = c.scope AND l.shard = mine.shard
                AND l.epoch = mine.epoch AND l.member_id = c.member_id
            WHERE l.expires_at > statement_timestamp()
        ) AND NOT EXISTS (
            SELECT FROM @{schema}outbox_claim_end e WHERE e.claim_id = c.claim_id
        )
    ) THEN 'PUBLISHING' ELSE 'NEW' END)::varchar(10) AS live_status, o.*
    FROM @{schema}outbox o WHERE o.status = 'NEW' AND o.set_aside IS NULL
    UNION ALL
    SELECT 'NEW'::varchar(10), o.*
    FROM @{schema}outbox o WHERE o.status = 'NEW' AND o.set_aside IS NOT NULL
    UNION ALL
    SELECT o.status, o.*
    FROM @{schema}outbox o WHERE o.status IN ('PUBLISHING', 'FAILED', 'DEAD')
    UNION ALL
    SELECT 'SENT'::varchar(10), o.*
    FROM @{schema}outbox o WHERE o.status = 'SENT'
) AS by_status;

-- Small tables that change all the time: vacuum by count, not by share; room for HOT updates.
ALTER TABLE @{schema}outbox_lease SET (fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
ALTER TABLE @{schema}outbox_member SET (fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
ALTER TABLE @{schema}outbox_claim SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 2000);
-- Compressing the numbers of a batch would cost more than writing them.
ALTER TABLE @{schema}outbox_claim
    ALTER seqs SET STORAGE EXTERNAL, ALTER shards SET STORAGE EXTERNAL,
    ALTER epochs SET STORAGE EXTERNAL;
ALTER TABLE @{schema}outbox_claim_end SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 2000);
ALTER TABLE @{schema}outbox_blocked_key SET (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);

INSERT INTO @{schema}outbox_settings (id, schema_version, shard_count, layout)
VALUES (1, 1, @{shards}, '@{layout}')
ON CONFLICT (id) DO UPDATE SET schema_version = greatest(
    outbox_settings.schema_version, excluded.schema_version
);
