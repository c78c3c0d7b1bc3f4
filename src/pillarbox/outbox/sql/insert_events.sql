-- Purpose: record a transaction's events in one statement, after the business rows.
-- Locks: advisory transaction locks, first: a tenant's gate shared with its keys' locks in sorted
--        order, or the gate alone when a bulk has too many keys. Writers of one key thereby draw
--        their sequence numbers in the order in which they commit.
-- Index: the primary key, for the conflict check.
-- The rows come as one JSON text, so that the statement never varies and any driver can send it.
-- Sequence and transaction id are left to the column defaults, which are evaluated per row after
-- the locks are held.
WITH locks AS MATERIALIZED (
    SELECT count(
        CASE
            WHEN l.shared THEN CAST(pg_advisory_xact_lock_shared(l.number) AS text)
            ELSE CAST(pg_advisory_xact_lock(l.number) AS text)
        END
    )
    FROM unnest(
        CAST(CAST(:lock_shared AS text) AS boolean[]), CAST(CAST(:lock_numbers AS text) AS bigint[])
    ) AS l(shared, number)
), inserted AS (
    INSERT INTO outbox (
        occurred_at, deliver_at, expires_at, aggregate_version, event_number, shard_hash,
        schema_version, id, tenant_id, set_aside, event_type, topic, key, aggregate_type,
        aggregate_id, routing_key, schema_id, event_metadata, content_type, payload, payload_bytes
    )
    SELECT
        e.occurred_at, e.deliver_at, e.expires_at, e.aggregate_version, e.event_number,
        e.shard_hash, e.schema_version, e.id, e.tenant_id,
        CASE WHEN e.deliver_at > now() THEN 'later' END,
        e.event_type, e.topic, e.key, e.aggregate_type, e.aggregate_id, e.routing_key,
        e.schema_id, CAST(e.event_metadata AS json), e.content_type, CAST(e.payload AS json),
        decode(e.payload_bytes, 'base64')
    FROM locks, json_to_recordset(CAST(:events AS json)) AS e(
        occurred_at timestamptz, deliver_at timestamptz, expires_at timestamptz,
        aggregate_version bigint, event_number integer, shard_hash integer,
        schema_version integer, id uuid, tenant_id text, event_type text, topic text, key text,
        aggregate_type text, aggregate_id text, routing_key text, schema_id text,
        event_metadata text, content_type text, payload text, payload_bytes text
    )
    ON CONFLICT (tenant_id, id) DO NOTHING
    RETURNING 1
)
SELECT count(*) AS inserted, CAST(pg_current_xact_id() AS text) AS txid FROM inserted
