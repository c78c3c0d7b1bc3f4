-- Purpose: the business tables of the workload, and an audit of what projectors write.
-- Locks: none that last; run once in a fresh database, after the outbox is there.
-- The audit is written by triggers, in the transaction that it tells of.

CREATE TABLE ledger_key (
    tenant text NOT NULL,
    key text NOT NULL,
    n bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, key)
);

CREATE TABLE ledger (
    tenant text NOT NULL,
    key text NOT NULL,
    n bigint NOT NULL,
    message_id uuid NOT NULL UNIQUE,
    topic text NOT NULL,
    sha256 text NOT NULL,
    PRIMARY KEY (tenant, key, n)
);

-- A projector's connections carry its name in the setting rig.projector.
CREATE FUNCTION rig_projector() RETURNS text LANGUAGE sql STABLE AS
    $$ SELECT coalesce(current_setting('rig.projector', true), '') $$;

CREATE TABLE audit_status (
    number bigserial PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    projector text NOT NULL DEFAULT rig_projector(),
    message_id uuid NOT NULL,
    old_status text NOT NULL,
    new_status text NOT NULL,
    old_attempts integer NOT NULL,
    new_attempts integer NOT NULL,
    owner uuid
);

CREATE FUNCTION audit_status() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audit_status (message_id, old_status, new_status, old_attempts, new_attempts, owner)
    SELECT n.id, o.status, n.status, o.retry_count, n.retry_count, l.member_id
    FROM new_rows n
    JOIN old_rows o ON o.tenant_id = n.tenant_id AND o.id = n.id
    LEFT JOIN outbox_lease l
        ON l.shard = (n.shard_hash & (SELECT s.shard_count - 1 FROM outbox_settings s))
    WHERE (o.status, o.retry_count) IS DISTINCT FROM (n.status, n.retry_count);
    RETURN NULL;
END $$;

CREATE TRIGGER audit_status AFTER UPDATE ON outbox
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION audit_status();

CREATE TABLE audit_lease (
    number bigserial PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    projector text NOT NULL DEFAULT rig_projector(),
    scope text NOT NULL,
    shard integer NOT NULL,
    old_member uuid,
    new_member uuid,
    old_epoch bigint,
    new_epoch bigint,
    old_expires_at timestamptz
);

-- Renewals are left out: they change neither owner nor epoch.
CREATE FUNCTION audit_lease() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audit_lease
        (scope, shard, old_member, new_member, old_epoch, new_epoch, old_expires_at)
    VALUES (coalesce(NEW.scope, OLD.scope), coalesce(NEW.shard, OLD.shard), OLD.member_id,
        NEW.member_id, OLD.epoch, NEW.epoch, OLD.expires_at);
    RETURN NULL;
END $$;

CREATE TRIGGER audit_lease_change AFTER UPDATE ON outbox_lease FOR EACH ROW
    WHEN ((OLD.member_id, OLD.epoch) IS DISTINCT FROM (NEW.member_id, NEW.epoch))
    EXECUTE FUNCTION audit_lease();
CREATE TRIGGER audit_lease_coming AFTER INSERT OR DELETE ON outbox_lease FOR EACH ROW
    EXECUTE FUNCTION audit_lease();

CREATE TABLE audit_claim (
    number bigserial PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    projector text NOT NULL DEFAULT rig_projector(),
    member uuid NOT NULL,
    seqs bigint[] NOT NULL
);
CREATE INDEX ON audit_claim (projector);

CREATE FUNCTION audit_claim() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audit_claim (member, seqs) VALUES (NEW.member_id, NEW.seqs);
    RETURN NULL;
END $$;

CREATE TRIGGER audit_claim AFTER INSERT ON outbox_claim FOR EACH ROW
    EXECUTE FUNCTION audit_claim();

CREATE TABLE audit_member (
    member uuid PRIMARY KEY,
    projector text NOT NULL DEFAULT rig_projector()
);

CREATE FUNCTION audit_member() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audit_member (member) VALUES (NEW.member_id) ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;

CREATE TRIGGER audit_member AFTER INSERT ON outbox_member FOR EACH ROW
    EXECUTE FUNCTION audit_member();
