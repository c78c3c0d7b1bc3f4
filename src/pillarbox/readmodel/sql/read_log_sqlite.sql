-- Purpose: read the log above a number. Numbers are drawn under the write lock: there are no gaps.
-- Locks: none beside the transaction's own.
-- Index: ix_outbox_seq.
SELECT
    NULL AS snapshot, o.seq, o.tenant_id, o.id, o."key", o.event_type, o.topic, o.aggregate_type,
    o.aggregate_id, o.aggregate_version, o.event_number, o.routing_key, o.schema_id,
    o.schema_version, o.occurred_at, o.event_metadata, o.content_type,
    CASE WHEN o.event_type IN (SELECT value FROM json_each(:types)) THEN o.payload END AS payload,
    CASE WHEN o.event_type IN (SELECT value FROM json_each(:types)) THEN o.payload_bytes END
        AS payload_bytes
FROM outbox AS o WHERE o.seq > 0 AND o.seq > :number ORDER BY o.seq LIMIT :most
