-- Purpose: record one event, the usual case, with typed parameters: half the cost of the form for
--          many, which has to take a JSON text apart.
-- Locks: the tenant's gate, shared, and the key's lock, before the row is numbered; a lock number
--        that is NULL (an unordered event) locks nothing.
-- Index: the primary key, for the conflict check.
WITH locks AS MATERIALIZED (
    SELECT
        pg_advisory_xact_lock_shared(CAST(:gate AS bigint)),
        pg_advisory_xact_lock(CAST(:key_lock AS bigint))
), event AS (
    SELECT
        CAST(:occurred_at AS timestamptz) AS occurred_at,
        CAST(:deliver_at AS timestamptz) AS deliver_at,
        CAST(:expires_at AS timestamptz) AS expires_at,
        CAST(:aggregate_version AS bigint) AS aggregate_version,
        CAST(:event_number AS integer) AS event_number,
        CAST(:shard_hash AS integer) AS shard_hash,
        CAST(:schema_version AS integer) AS schema_version,
        CAST(:id AS uuid) AS id,
        CAST(:tenant_id AS text) AS tenant_id,
        CAST(:event_type AS text) AS event_type,
        CAST(:topic AS text) AS topic,
        CAST(:key AS text) AS key,
        CAST(:aggregate_type AS text) AS aggregate_type,
        CAST(:aggregate_id AS text) AS aggregate_id,
        CAST(:routing_key AS text) AS routing_key,
        CAST(:schema_id AS text) AS schema_id,
        CAST(CAST(:event_metadata AS text) AS json) AS event_metadata,
        CAST(:content_type AS text) AS content_type,
        CAST(CAST(:payload AS text) AS json) AS payload,
        CAST(:payload_bytes AS bytea) AS payload_bytes
    FROM locks
)
INSERT INTO outbox (
    occurred_at, deliver_at, expires_at, aggregate_version, event_number, shard_hash,
    schema_version, id, tenant_id, event_type, topic, key, aggregate_type, aggregate_id,
    routing_key, schema_id, event_metadata, content_type, payload, payload_bytes, set_aside
)
SELECT event.*, CASE WHEN event.deliver_at > now() THEN 'later' END FROM event
ON CONFLICT (tenant_id, id) DO NOTHING
RETURNING CAST(txid AS text)
