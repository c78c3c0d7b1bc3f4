-- Purpose: make joining one by one.
-- Locks: an advisory lock until the transaction ends.
-- A statement of its own: the next one must see who joined while this one waited.
SELECT pg_advisory_xact_lock(7017483652)
