-- Purpose: write the member's row and the leases that its scope lacks.
-- Locks: its own rows.
WITH leases AS (
    INSERT INTO @{schema}outbox_lease (scope, shard)
    SELECT %(scope)s, generate_series(0, @{mask}) ON CONFLICT DO NOTHING
)
INSERT INTO @{schema}outbox_member (
    member_id, scope, service, host, process_id, version, seen_at
) VALUES (
    %(member)s, %(served)s, %(service)s, %(host)s, %(process)s, %(version)s, clock_timestamp()
)
ON CONFLICT (member_id) DO UPDATE SET seen_at = excluded.seen_at
