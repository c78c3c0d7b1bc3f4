-- Purpose: make joining one by one.
-- Locks: an advisory lock until the transaction ends; the server ends the session of one that freezes
--   in it, or nobody could join any more.
-- A statement of its own: the next one must see who joined while this one waited.
SELECT set_config('idle_in_transaction_session_timeout', %(idle)s, true),
    pg_advisory_xact_lock(7017483652)
