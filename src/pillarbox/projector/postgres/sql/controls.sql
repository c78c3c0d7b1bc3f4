-- Purpose: read what operators asked of tenants and topics.
-- Locks: none.
SELECT tenant_id, topic, paused, events_per_second FROM @{schema}outbox_control
WHERE paused <> 0 OR events_per_second IS NOT NULL
