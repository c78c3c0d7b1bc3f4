-- Purpose: create the outbox, version 1, on SQLite.
-- Locks: the database's write lock, statement by statement; every statement may be repeated.
-- Frozen: never edit this file after a release; write the next version.

-- seq has no default: the writer draws it from outbox_settings.last_seq in its transaction.
CREATE TABLE IF NOT EXISTS outbox (
    txid BIGINT,
    seq INTEGER NOT NULL,
    occurred_at DATETIME NOT NULL,
    created_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP,
    deliver_at DATETIME,
    expires_at DATETIME,
    retry_after DATETIME,
    published_at DATETIME,
    aggregate_version INTEGER,
    event_number INTEGER,
    shard_hash INTEGER NOT NULL,
    schema_version INTEGER NOT NULL DEFAULT 1,
    retry_count INTEGER NOT NULL DEFAULT 0,
    id VARCHAR(36) NOT NULL,
    tenant_id VARCHAR(64) NOT NULL DEFAULT 'default',
    status VARCHAR(10) NOT NULL DEFAULT 'NEW',
    set_aside VARCHAR(8),
    event_type VARCHAR(255) NOT NULL,
    topic VARCHAR(249) NOT NULL,
    "key" VARCHAR(255) NOT NULL,
    aggregate_type VARCHAR(255),
    aggregate_id VARCHAR(255),
    routing_key VARCHAR(255),
    schema_id VARCHAR(255),
    error_class VARCHAR(100),
    error_message TEXT,
    event_metadata TEXT NOT NULL DEFAULT '{}',
    content_type VARCHAR(255) NOT NULL DEFAULT 'application/json',
    payload TEXT,
    payload_bytes BLOB,
    CONSTRAINT pk_outbox PRIMARY KEY (tenant_id, id),
    CONSTRAINT ck_outbox_status
        CHECK (status IN ('NEW', 'PUBLISHING', 'SENT', 'FAILED', 'DEAD')),
    CONSTRAINT ck_outbox_set_aside CHECK (set_aside IN ('key', 'later')),
    CONSTRAINT ck_outbox_one_payload CHECK (payload IS NULL OR payload_bytes IS NULL)
);

-- Every index is partial: a SENT row stands in none of them but the primary key.
CREATE INDEX IF NOT EXISTS ix_outbox_claim ON outbox
    ((shard_hash & @{mask}), tenant_id, seq) WHERE status = 'NEW' AND set_aside IS NULL;
CREATE INDEX IF NOT EXISTS ix_outbox_txid ON outbox
    (txid) WHERE status = 'NEW' AND set_aside IS NULL;
CREATE INDEX IF NOT EXISTS ix_outbox_set_aside ON outbox
    (tenant_id, "key", seq) WHERE set_aside IS NOT NULL;
CREATE INDEX IF NOT EXISTS ix_outbox_due ON outbox
    (deliver_at) WHERE set_aside = 'later';
CREATE INDEX IF NOT EXISTS ix_outbox_processing ON outbox
    (status, retry_after) WHERE status = 'FAILED';
CREATE INDEX IF NOT EXISTS ix_tenant_id_status ON outbox
    (tenant_id, status) WHERE status IN ('PUBLISHING', 'FAILED', 'DEAD');
CREATE INDEX IF NOT EXISTS ix_outbox_topic ON outbox
    (topic) WHERE status IN ('FAILED', 'DEAD');

CREATE TABLE IF NOT EXISTS outbox_settings (
    id SMALLINT NOT NULL DEFAULT 1,
    schema_version INTEGER NOT NULL,
    shard_count INTEGER NOT NULL DEFAULT 64,
    shard_hash VARCHAR(32) NOT NULL DEFAULT 'sha256-16',
    layout VARCHAR(11) NOT NULL DEFAULT 'plain',
    last_seq INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (id),
    CONSTRAINT ck_outbox_settings_one_row CHECK (id = 1),
    CONSTRAINT ck_outbox_settings_shard_count CHECK (
        shard_count BETWEEN 1 AND 1024 AND (shard_count & (shard_count - 1)) = 0
    ),
    CONSTRAINT ck_outbox_settings_layout CHECK (layout IN ('plain', 'partitioned'))
);

CREATE TABLE IF NOT EXISTS outbox_member (
    member_id VARCHAR(36) NOT NULL,
    scope TEXT NOT NULL,
    service VARCHAR(255) NOT NULL,
    host VARCHAR(255) NOT NULL,
    process_id INTEGER NOT NULL,
    version VARCHAR(32) NOT NULL,
    started_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP,
    seen_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY (member_id)
);

CREATE TABLE IF NOT EXISTS outbox_lease (
    scope VARCHAR(255) NOT NULL,
    shard INTEGER NOT NULL,
    member_id VARCHAR(36),
    epoch INTEGER NOT NULL DEFAULT 0,
    expires_at DATETIME,
    PRIMARY KEY (scope, shard)
);

CREATE TABLE IF NOT EXISTS outbox_claim (
    claim_id VARCHAR(36) NOT NULL,
    member_id VARCHAR(36) NOT NULL,
    claimed_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP,
    scope VARCHAR(255) NOT NULL,
    shards TEXT NOT NULL,
    epochs TEXT NOT NULL,
    seqs TEXT NOT NULL,
    PRIMARY KEY (claim_id)
);

CREATE TABLE IF NOT EXISTS outbox_claim_end (
    claim_id VARCHAR(36) NOT NULL,
    ended_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY (claim_id)
);

CREATE TABLE IF NOT EXISTS outbox_blocked_key (
    tenant_id VARCHAR(64) NOT NULL,
    "key" VARCHAR(255) NOT NULL,
    event_id VARCHAR(36) NOT NULL,
    seq INTEGER NOT NULL,
    blocked_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP,
    topic VARCHAR(249),
    PRIMARY KEY (tenant_id, "key")
);
CREATE INDEX IF NOT EXISTS ix_outbox_blocked_key_topic ON outbox_blocked_key
    (topic, blocked_at) WHERE topic IS NOT NULL;

CREATE TABLE IF NOT EXISTS outbox_control (
    tenant_id VARCHAR(64) NOT NULL,
    topic VARCHAR(249) NOT NULL,
    paused SMALLINT NOT NULL DEFAULT 0,
    events_per_second INTEGER,
    changed_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY (tenant_id, topic)
);

CREATE TABLE IF NOT EXISTS pillarbox_audit (
    tenant_id VARCHAR(64) NOT NULL,
    audit_id VARCHAR(36) NOT NULL,
    at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP,
    actor VARCHAR(255) NOT NULL,
    action VARCHAR(32) NOT NULL,
    reason TEXT NOT NULL,
    subject TEXT NOT NULL,
    affected INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, audit_id)
);

-- Rows by live status. One branch per status, so that a condition on status reads only the
-- branches that can answer it, each by its partial index; SENT rows are read when asked for.
-- A claim is open while it has no end and its first shard's lease is still the claimant's.
CREATE VIEW IF NOT EXISTS outbox_live AS
SELECT
    id, tenant_id, live_status AS status, set_aside, seq, event_type, topic, "key",
    aggregate_type, aggregate_id, aggregate_version, event_number, routing_key,
    schema_id, schema_version, occurred_at, created_at, deliver_at, expires_at, published_at,
    retry_count, retry_after, error_class, error_message, event_metadata, content_type,
    payload, payload_bytes
FROM (
    SELECT CASE WHEN o.seq IN (
        SELECT s.value
        FROM outbox_claim c
        JOIN json_each(c.seqs) s
        WHERE EXISTS (
            SELECT 1 FROM json_each(c.shards) AS shard
            JOIN json_each(c.epochs) AS epoch ON epoch."key" = shard."key"
            JOIN outbox_lease l ON l.scope = c.scope AND l.shard = shard.value
                AND l.epoch = epoch.value AND l.member_id = c.member_id
            WHERE l.expires_at > strftime('%Y-%m-%d %H:%M:%f', 'now')
        ) AND NOT EXISTS (
            SELECT 1 FROM outbox_claim_end e WHERE e.claim_id = c.claim_id
        )
    ) THEN 'PUBLISHING' ELSE 'NEW' END AS live_status, o.*
    FROM outbox o WHERE o.status = 'NEW' AND o.set_aside IS NULL
    UNION ALL
    SELECT 'NEW', o.*
    FROM outbox o WHERE o.status = 'NEW' AND o.set_aside IS NOT NULL
    UNION ALL
    SELECT o.status, o.*
    FROM outbox o WHERE o.status IN ('PUBLISHING', 'FAILED', 'DEAD')
    UNION ALL
    SELECT 'SENT', o.*
    FROM outbox o WHERE o.status = 'SENT'
) AS by_status;

INSERT INTO outbox_settings (id, schema_version, shard_count, layout)
VALUES (1, 1, @{shards}, '@{layout}')
ON CONFLICT (id) DO UPDATE SET schema_version = max(schema_version, excluded.schema_version);
